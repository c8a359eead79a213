#include "api/admin_source.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "api/row_batch_factory.h"
#include "api/rows_rep.h"
#include "api/sample_factory.h"
#include "base/log.h"
#include "view/items_json.h"
#include "view/shown_text.h"

namespace reverb::internal {
namespace {

// Items of a table that are looked at for the distributions.
constexpr size_t kSurveyedItems = 1000;
// Larger items and rows are shown without their data.
constexpr size_t kMaxShownItemBytes = size_t{64} << 20;
// An answer ends with the item that exceeds this.
constexpr size_t kMaxItemsJsonBytes = size_t{16} << 20;
// A file system with less room counts as full.
constexpr int64_t kMinDiskFreeBytes = int64_t{16} << 20;

constexpr double kAgeBounds[] = {1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600};
constexpr double kTimesSampledBounds[] = {0, 1, 2, 4, 8, 16, 32, 64, 128};

int64_t ResidentBytes() {
  int64_t pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re")) {
    int64_t total = 0;
    if (std::fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    (void)std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

const char* TransportOf(const std::string& address) {
  if (address.empty()) return "inproc";
  return address.starts_with("pid ") ? "local" : "grpc";
}

// Counts the values, and scales the counts to a total of `size`.
AdminHistogram HistogramOf(std::vector<double> bounds, const std::vector<double>& values, int64_t size) {
  AdminHistogram histogram{.bounds = std::move(bounds)};
  std::vector<int64_t> counts(histogram.bounds.size() + 1);
  double sum = 0;
  for (const double value : values) {
    ++counts[static_cast<size_t>(std::ranges::lower_bound(histogram.bounds, value) -
                                 histogram.bounds.begin())];
    sum += value;
  }
  const auto found = static_cast<int64_t>(values.size());
  if (found == 0) return histogram;
  // Rounds the cumulative counts, so that the total is exact.
  int64_t cumulative = 0;
  int64_t scaled = 0;
  for (const int64_t count : counts) {
    cumulative += count;
    const auto next = static_cast<int64_t>(std::llround(
        static_cast<double>(cumulative) / static_cast<double>(found) * static_cast<double>(size)));
    histogram.counts.push_back(next - scaled);
    scaled = next;
  }
  histogram.sum = sum / static_cast<double>(found) * static_cast<double>(size);
  return histogram;
}

// Returns ten bounds that divide the range of the values evenly; on a logarithmic scale if all are above 0.
std::vector<double> PriorityBounds(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  constexpr int kBounds = 10;
  if (!(most > least)) return {least};
  std::vector<double> bounds;
  for (int i = 1; i <= kBounds; ++i) {
    const double share = static_cast<double>(i) / kBounds;
    const double bound = i == kBounds ? most
                         : least > 0  ? least * std::pow(most / least, share)
                                      : least + (most - least) * share;
    if (bounds.empty() || bound > bounds.back()) bounds.push_back(bound);
  }
  return bounds;
}

AdminSurvey SurveyOf(const std::vector<ItemMark>& marks, int64_t size, int64_t now_nanos) {
  std::vector<double> ages;
  std::vector<double> times;
  std::vector<double> priorities;
  for (const ItemMark& mark : marks) {
    ages.push_back(static_cast<double>(std::max<int64_t>(now_nanos - mark.inserted_at, 0)) * 1e-9);
    times.push_back(mark.times_sampled);
    if (std::isfinite(mark.priority)) priorities.push_back(mark.priority);
  }
  AdminSurvey survey;
  survey.age_seconds = HistogramOf({std::begin(kAgeBounds), std::end(kAgeBounds)}, ages, size);
  survey.times_sampled =
      HistogramOf({std::begin(kTimesSampledBounds), std::end(kTimesSampledBounds)}, times, size);
  if (!priorities.empty()) survey.priority = HistogramOf(PriorityBounds(priorities), priorities, size);
  return survey;
}

uint64_t DecodedBytes(const RowRecord& row) {
  uint64_t bytes = 0;
  for (const RowSegment& segment : row.segments) bytes += segment.decoded_bytes();
  return bytes;
}

class ServerAdminSource final : public AdminSource {
 public:
  ServerAdminSource(ServerImpl* server, std::string address, std::string commit)
      : server_(server), address_(std::move(address)), commit_(std::move(commit)) {}

  const AccessControl& access() const override { return *server_->access(); }

  Result<AdminState> State() override {
    AdminState state;
    REVERB_ASSIGN_OR_RETURN(state.info, server_->service()->Info());
    state.address = address_;
    // "reverb 0.1.0".
    const std::string name = DefaultServerName();
    state.version = name.substr(name.find(' ') + 1);
    state.commit = commit_;
    state.resident_bytes = ResidentBytes();
    AddSurveys(&state);
    AddClients(&state);
    const TrafficCounters::Totals traffic = server_->traffic();
    state.traffic = {.messages_in = traffic.messages_in,
                     .messages_out = traffic.messages_out,
                     .bytes_in = traffic.bytes_in,
                     .bytes_out = traffic.bytes_out};
    state.call_streams = traffic.call_streams;
    AddErrors(&state);
    AddCheckpoints(&state);
    state.not_ready_reason = NotReadyReason(state);
    return state;
  }

  Result<std::string> ItemsJson(const AdminItemsQuery& query, const ServerInfo& info) override {
    JsonWriter json;
    json.BeginObject().Key("items").BeginArray();
    REVERB_ASSIGN_OR_RETURN(const uint64_t next,
                            query.is_rows ? AddRows(query, &json) : AddItems(query, info, &json));
    json.End();
    // A string: programs that read numbers as doubles would change it.
    json.Field("next", next == 0 ? std::nullopt : std::optional(std::to_string(next))).End();
    const std::string& text = json.text();
    return text.substr(1, text.size() - 2);
  }

 private:
  void AddSurveys(AdminState* state) const {
    for (const TableInfo& info : state->info.tables) {
      if (info.current_size == 0) continue;
      const auto table = server_->table(info.name);
      if (!table.ok()) continue;
      const std::vector<ItemMark> marks = (*table)->Survey(kSurveyedItems);
      if (!marks.empty()) {
        state->surveys.emplace(info.name, SurveyOf(marks, info.current_size, state->info.now_nanos));
      }
    }
  }

  void AddClients(AdminState* state) const {
    const TimePoint now = server_->service()->clock()->Now();
    state->connections = {{"local", 0}, {"grpc", 0}, {"inproc", 0}};
    std::map<std::tuple<std::string, std::string>, AdminClient> clients;
    std::map<std::string, int64_t> streams_at;
    for (const Service::StreamInfo& stream : server_->service()->streams()) {
      const std::string transport = TransportOf(stream.address);
      AdminClient& client = clients[{stream.address, stream.client_name}];
      client.name = stream.client_name;
      client.address = stream.address;
      client.transport = transport;
      ++(stream.is_insert ? client.writers : client.samplers);
      ++(stream.is_insert ? state->insert_streams : state->sample_streams);
      const double seconds = std::chrono::duration<double>(now - stream.opened).count();
      client.connected_seconds = std::max(client.connected_seconds.value_or(0), seconds);
      // All streams of an address are one connection, or one process of this host.
      if (stream.address.empty() || ++streams_at[stream.address] == 1) ++state->connections[transport];
    }
    for (auto& [key, client] : clients) state->clients.push_back(std::move(client));
    for (const RowTableInfo& table : state->info.row_tables) {
      state->row_calls += table.waiting_writes + table.waiting_claims + table.waiting_reservations;
    }
  }

  static void AddErrors(AdminState* state) {
    const auto counts = RefusalCounts();
    for (size_t i = 0; i < counts.size(); ++i) {
      const Status status(static_cast<StatusCode>(i), "");
      // Those that a server may refuse a request with are always shown, so that their first one is an increase.
      if (i == 0 || (counts[i] == 0 && !IsRefusal(status))) continue;
      state->errors.emplace(StatusCodeName(static_cast<StatusCode>(i)), counts[i]);
    }
  }

  void AddCheckpoints(AdminState* state) const {
    const std::shared_ptr<Checkpointer>& checkpointer = server_->checkpointer();
    if (checkpointer == nullptr) return;
    const Checkpointer::Stats stats = checkpointer->stats();
    AdminCheckpoints checkpoints{.path = checkpointer->path(),
                                 .count = stats.written,
                                 .failures = stats.failed,
                                 .is_running = stats.is_writing};
    if (stats.finished_nanos > 0) {
      checkpoints.last_time_seconds = static_cast<double>(stats.finished_nanos) * 1e-9;
      checkpoints.last_duration_seconds = std::chrono::duration<double>(stats.took).count();
      checkpoints.last_bytes = static_cast<int64_t>(stats.last.chunk_bytes + stats.last.page_bytes);
    }
    if (!stats.last_status.ok()) checkpoints.last_error = std::string(stats.last_status.message());
    struct statvfs disk {};
    std::string path = checkpoints.path;
    // The folder is created with the first checkpoint.
    while (statvfs(path.c_str(), &disk) != 0) {
      const size_t slash = path.find_last_of('/');
      if (slash == std::string::npos || path.size() == 1) {
        path = path == "." || path == "/" ? "" : slash == 0 ? "/" : ".";
      } else {
        path = slash == 0 ? "/" : path.substr(0, slash);
      }
      if (path.empty()) break;
    }
    if (!path.empty()) {
      checkpoints.disk_free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
    }
    state->checkpoints = std::move(checkpoints);
  }

  static std::string MemoryText(const ServerInfo& info) {
    std::string text;
    if (info.max_bytes) {
      text = std::to_string(info.stored_bytes) + " of max_bytes " + std::to_string(*info.max_bytes) +
             " bytes are stored";
    }
    if (info.memory.limit) {
      text += (text.empty() ? "" : ", and ") + std::to_string(info.memory.used) + " of memory_limit " +
              std::to_string(*info.memory.limit) + " bytes are used";
    }
    return text;
  }

  static std::optional<std::string> NotReadyReason(const AdminState& state) {
    for (const TableInfo& table : state.info.tables) {
      if (table.waiting_inserts == 0 || table.insert_wait_reason != WaitReason::kMemory) continue;
      return "memory is exhausted: inserts into table \"" + ShowName(table.name) + "\" wait, since " +
             MemoryText(state.info);
    }
    if (!state.checkpoints || !state.checkpoints->disk_free_bytes) return std::nullopt;
    if (*state.checkpoints->disk_free_bytes < kMinDiskFreeBytes) {
      return "the disk is full: the file system of the checkpoints, \"" + ShowName(state.checkpoints->path) +
             "\", has " + std::to_string(*state.checkpoints->disk_free_bytes) + " bytes left";
    }
    return std::nullopt;
  }

  // Return the cursor of the next item, 0 at the end.
  Result<uint64_t> AddItems(const AdminItemsQuery& query, const ServerInfo& info, JsonWriter* json) {
    ItemFormat format{.table = query.table,
                      .now_nanos = info.now_nanos,
                      .columns = {.values = query.values, .images = query.images}};
    for (const TableInfo& table : info.tables) {
      if (table.name == query.table) format.column_names = ColumnNamesOf(table);
    }
    uint64_t cursor = query.after;
    int64_t left = query.limit;
    do {
      // One at a time: the cursor then is that of the next item, wherever the answer ends.
      REVERB_ASSIGN_OR_RETURN(InspectReply reply, server_->service()->Inspect(
                                                      {.table = query.table, .cursor = cursor, .count = 1}));
      cursor = reply.next_cursor;
      for (const SampledTrajectory& item : MakeSampledTrajectories(std::move(reply.items))) {
        REVERB_RETURN_IF_ERROR(AddItemJson(format, item, item.decoded_bytes() <= kMaxShownItemBytes, json));
        --left;
      }
    } while (cursor != 0 && left > 0 && json->size() < kMaxItemsJsonBytes);
    if (cursor == 0) return cursor;
    // The last item may have been the last of the table.
    REVERB_ASSIGN_OR_RETURN(
        const InspectReply more,
        server_->service()->Inspect({.table = query.table, .cursor = cursor, .count = 1}));
    return more.items.empty() ? 0 : cursor;
  }

  Result<RowsReply> CallRows(RowsCall call) {
    std::optional<Result<RowsReply>> result;
    // Neither listing nor reading waits.
    (void)server_->service()->StartRows({.call = std::move(call)}, [&](Result<RowsReply> reply) {
      result.emplace(std::move(reply));
      return true;
    });
    if (!result) return Status::Internal("listing rows has not ended");
    return *std::move(result);
  }

  Result<uint64_t> AddRows(const AdminItemsQuery& query, JsonWriter* json) {
    uint64_t cursor = query.after;
    int64_t left = query.limit;
    const ColumnFormat format{.values = query.values, .images = query.images};
    do {
      RowsCall list{.verb = RowsVerb::kList, .table = query.table};
      list.cursor = cursor;
      list.count = 1;
      REVERB_ASSIGN_OR_RETURN(RowsReply listed, CallRows(std::move(list)));
      cursor = listed.result.cursor;
      for (RowRecord& record : listed.rows) {
        const RowInfo row = Rows::Rep::InfoOf(&record);
        RowsCall get{.verb = RowsVerb::kGet, .table = query.table};
        get.keys = {row.key};
        get.claim.select = row.columns;
        REVERB_ASSIGN_OR_RETURN(RowsReply got, CallRows(std::move(get)));
        // The row may be gone.
        const bool is_shown = got.rows_with_data > 0 && DecodedBytes(got.rows.front()) <= kMaxShownItemBytes;
        const RowBatch batch = !is_shown ? RowBatch()
                                         : RowBatchFactory::Make(std::move(got.result.columns),
                                                                 std::move(got.rows), got.result.version);
        REVERB_RETURN_IF_ERROR(AddRowJson(query.table, format, row, batch, json));
        --left;
      }
    } while (cursor != 0 && left > 0 && json->size() < kMaxItemsJsonBytes);
    if (cursor == 0) return cursor;
    RowsCall look{.verb = RowsVerb::kList, .table = query.table};
    look.cursor = cursor;
    look.count = 1;
    REVERB_ASSIGN_OR_RETURN(const RowsReply more, CallRows(std::move(look)));
    return more.rows.empty() ? 0 : cursor;
  }

  ServerImpl* const server_;
  const std::string address_;
  const std::string commit_;
};

}  // namespace

std::shared_ptr<AdminSource> MakeAdminSource(ServerImpl* server, std::string address, std::string commit) {
  return std::make_shared<ServerAdminSource>(server, std::move(address), std::move(commit));
}

}  // namespace reverb::internal
