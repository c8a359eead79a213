#include "admin/admin_json.h"

#include <algorithm>
#include <optional>

#include "view/info_json.h"
#include "view/json.h"

namespace reverb::internal {
namespace {

constexpr size_t kMaxClients = 200;

void AddHistogram(std::string_view key, const AdminHistogram* histogram, JsonWriter* json) {
  json->Key(key);
  if (histogram == nullptr) {
    json->Null();
    return;
  }
  json->BeginObject().Key("bounds").BeginArray();
  for (const double bound : histogram->bounds) json->Value(bound);
  json->End().Key("counts").BeginArray();
  for (const int64_t count : histogram->counts) json->Value(count);
  json->End().End();
}

void AddTableExtras(const AdminState& state, const TableInfo& table, JsonWriter* json) {
  json->Key("wait_seconds").BeginObject();
  for (const bool of_inserts : {true, false}) {
    json->Key(of_inserts ? "insert" : "sample").BeginObject();
    for (const auto& [reason, seconds] : WaitSeconds(table, of_inserts)) {
      json->Field(WaitReasonWord(reason), seconds);
    }
    json->End();
  }
  json->End();
  const auto found = state.surveys.find(table.name);
  const AdminSurvey* const survey = found == state.surveys.end() ? nullptr : &found->second;
  AddHistogram("age_histogram", survey ? &survey->age_seconds : nullptr, json);
  AddHistogram("times_sampled_histogram", survey ? &survey->times_sampled : nullptr, json);
  AddHistogram("priority_histogram", survey ? &survey->priority : nullptr, json);
}

void AddClient(const AdminClient& client, JsonWriter* json) {
  json->BeginObject()
      .Field("name", client.name)
      .Field("address", client.address)
      .Field("transport", client.transport)
      .Field("writers", client.writers)
      .Field("samplers", client.samplers)
      .Field("bytes_in", client.bytes_in)
      .Field("bytes_out", client.bytes_out)
      .Field("connected_seconds", client.connected_seconds)
      .End();
}

void AddCheckpoints(const AdminCheckpoints& checkpoints, JsonWriter* json) {
  json->BeginObject()
      .Field("path", checkpoints.path)
      .Field("count", checkpoints.count)
      .Field("failures", checkpoints.failures)
      .Field("last_time_seconds", checkpoints.last_time_seconds)
      .Field("last_duration_seconds", checkpoints.last_duration_seconds)
      .Field("last_bytes", checkpoints.last_bytes)
      .Field("last_error", checkpoints.last_error)
      .Field("running", checkpoints.is_running)
      .Field("disk_free_bytes", checkpoints.disk_free_bytes)
      .End();
}

}  // namespace

std::vector<std::pair<WaitReason, double>> WaitSeconds(const TableInfo& table, bool of_inserts) {
  using enum WaitReason;
  const std::vector<WaitReason> reasons = of_inserts
                                              ? std::vector{kTooManyInserts, kMemory, kQueued}
                                              : std::vector{kMinSize, kTooManySamples, kQueued, kLeased};
  std::vector<std::pair<WaitReason, double>> seconds;
  for (const WaitReason reason : reasons) {
    int64_t nanos = table.waits[static_cast<size_t>(reason)].total_nanos;
    if (reason == kQueued) {
      nanos = of_inserts ? table.queued_inserts.total_nanos : nanos - table.queued_inserts.total_nanos;
    }
    seconds.emplace_back(reason, static_cast<double>(std::max<int64_t>(nanos, 0)) * 1e-9);
  }
  return seconds;
}

std::string AdminInfoJson(const AdminState& state) {
  const ServerInfo& info = state.info;
  JsonWriter json;
  json.BeginObject();
  AddInfoHead(state.address, std::nullopt, info, &json);
  AddInfoFields(info, &json,
                [&](const TableInfo& table, JsonWriter* to) { AddTableExtras(state, table, to); });
  json.Field("ready", !state.not_ready_reason.has_value()).Field("not_ready_reason", state.not_ready_reason);
  json.Field("now_seconds", static_cast<double>(info.now_nanos) * 1e-9);
  json.Field("started_seconds", static_cast<double>(info.started_nanos) * 1e-9);
  json.Key("build").BeginObject().Field("version", state.version).Field("commit", state.commit).End();
  json.Field("resident_bytes", state.resident_bytes);
  json.Key("connections").BeginObject();
  for (const auto& [transport, count] : state.connections) json.Field(transport, count);
  json.End();
  json.Key("streams")
      .BeginObject()
      .Field("insert", state.insert_streams)
      .Field("sample", state.sample_streams)
      .Field("calls", state.call_streams)
      .Field("rows", state.row_calls)
      .End();
  json.Key("clients").BeginArray();
  for (size_t i = 0; i < std::min(state.clients.size(), kMaxClients); ++i) AddClient(state.clients[i], &json);
  json.End().Field("clients_total", static_cast<int64_t>(state.clients.size()));
  json.Key("traffic")
      .BeginObject()
      .Field("messages_in", state.traffic.messages_in)
      .Field("messages_out", state.traffic.messages_out)
      .Field("bytes_in", state.traffic.bytes_in)
      .Field("bytes_out", state.traffic.bytes_out)
      .End();
  json.Key("errors").BeginObject();
  for (const auto& [code, count] : state.errors) json.Field(code, count);
  json.End().Key("checkpoint");
  if (state.checkpoints) {
    AddCheckpoints(*state.checkpoints, &json);
  } else {
    json.Null();
  }
  return json.End().text();
}

std::string ErrorJson(std::string_view message) {
  JsonWriter json;
  json.BeginObject().Field("error", message).End();
  return json.text() + "\n";
}

AdminState VisibleTo(AdminState state, const AccessToken* token) {
  if (token != nullptr) token->HideOtherTables(&state.info);
  return state;
}

}  // namespace reverb::internal
