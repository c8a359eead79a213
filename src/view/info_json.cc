#include "view/info_json.h"

#include <algorithm>
#include <ranges>
#include <type_traits>
#include <utility>

#include "reverb/server_info_fields.h"
#include "reverb/signature.h"
#include "view/shown_text.h"

namespace reverb::internal {

const char* WaitReasonWord(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return "none";
    case WaitReason::kMinSize:
      return "min_size";
    case WaitReason::kTooManySamples:
      return "too_many_samples";
    case WaitReason::kTooManyInserts:
      return "too_many_inserts";
    case WaitReason::kMemory:
      return "memory";
    case WaitReason::kQueued:
      return "queued";
    case WaitReason::kLeased:
      return "leased";
  }
  return "unknown";
}

std::string ShowSelector(const SelectorOptions& selector) {
  using Kind = SelectorOptions::Kind;
  if (selector.kind == Kind::kCustom)
    return ShowName(selector.custom_name.empty() ? "custom" : selector.custom_name);
  for (const auto& [name, kind] : kSelectorNames) {
    if (kind != selector.kind) continue;
    std::string text(name);
    if (kind == Kind::kPrioritized) text += "=" + ShowNumber(selector.priority_exponent);
    return text;
  }
  return "unknown";
}

std::string ShowSignature(const TableInfo& table) {
  if (table.signature.empty()) return "";
  const Result<Signature> signature = DecodeSignature(table.signature);
  return signature.ok() ? signature->ToString() : "unreadable";
}

namespace {

double Seconds(int64_t nanos) { return static_cast<double>(nanos) / 1e9; }

// Add the value of a field that the JSON shows in another form. Return false for all other fields.
template <typename Record>
bool AddConverted(const Record& /*record*/, std::string_view /*name*/, JsonWriter* /*json*/) {
  return false;
}
bool AddConverted(const TableInfo& table, std::string_view name, JsonWriter* json) {
  if (name == "signature" && !table.signature.empty()) {
    json->Value(ShowSignature(table));
  } else if (name == "signature" || (name == "max_times_sampled" && table.max_times_sampled <= 0) ||
             (name == "max_age_nanos" && table.max_age_nanos <= 0) ||
             (name == "max_bytes" && table.max_bytes <= 0) ||
             (name == "insert_wait_reason" && table.waiting_inserts == 0) ||
             (name == "sample_wait_reason" && table.waiting_samples == 0)) {
    json->Null();
  } else {
    return false;
  }
  return true;
}
bool AddConverted(const WaiterInfo& waiter, std::string_view name, JsonWriter* json) {
  if (name != "is_insert") return false;
  json->Value(waiter.is_insert ? "insert" : "sample");
  return true;
}

bool AddConverted(const RowTableInfo& table, std::string_view name, JsonWriter* json) {
  if (!(name == "write_reason" && table.waiting_writes == 0) &&
      !(name == "claim_reason" && table.waiting_claims == 0) &&
      !(name == "reservation_reason" && table.waiting_reservations == 0)) {
    return false;
  }
  json->Null();
  return true;
}

// Writes records by the lists of their fields.
class RecordWriter {
 public:
  explicit RecordWriter(JsonWriter* json, const TableJsonHook* hook = nullptr) : json_(json), hook_(hook) {}

  template <typename T>
  void AddValue(FieldKind kind, const T& value) {
    if constexpr (requires { value.has_value(); }) {
      value ? AddValue(kind, *value) : static_cast<void>(json_->Null());
    } else if constexpr (std::is_same_v<T, SelectorOptions>) {
      json_->Value(ShowSelector(value));
    } else if constexpr (std::is_same_v<T, WaitReason>) {
      json_->Value(WaitReasonWord(value));
    } else if constexpr (std::is_same_v<T, LayoutPolicy>) {
      json_->Value(LayoutPolicyName(value));
    } else if constexpr (std::is_same_v<T, RowOrder>) {
      json_->Value(RowOrderName(value));
    } else if constexpr (std::is_same_v<T, WhenStale>) {
      json_->Value(WhenStaleName(value));
    } else if constexpr (std::is_enum_v<T>) {
      json_->Value(static_cast<int64_t>(value));
    } else if constexpr (HasFields<T>) {
      json_->BeginObject();
      AddFields(value);
      if constexpr (std::is_same_v<T, TableInfo>) {
        if (hook_ != nullptr && *hook_) (*hook_)(value, json_);
      }
      json_->End();
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      json_->Value(std::string_view(value));
    } else if constexpr (std::ranges::range<T>) {
      json_->BeginArray();
      for (const auto& each : value) AddValue(kind, each);
      json_->End();
    } else if constexpr (std::is_same_v<T, int64_t>) {
      kind == FieldKind::kNanos ? json_->Value(Seconds(value)) : json_->Value(value);
    } else {
      json_->Value(value);
    }
  }

  template <typename Record, typename F>
  void AddField(const Record& record, const F& field) {
    if constexpr (HasFields<std::remove_cvref_t<decltype(field(record))>>) {
      if (field.is_flat) return AddFields(field(record));
    }
    json_->Key(field.json_name);
    if (!AddConverted(record, field.name, json_)) AddValue(field.kind, field(record));
  }

  template <HasFields Record>
  void AddFields(const Record& record) {
    ForEachField<Record>([&](const auto& field) {
      if (!field.json_name.empty()) AddField(record, field);
    });
  }

 private:
  JsonWriter* const json_;
  const TableJsonHook* const hook_;
};

}  // namespace

void AddInfoHead(const std::string& address, const std::optional<std::string>& transport,
                 const ServerInfo& info, JsonWriter* json) {
  json->Field("address", address)
      .Field("transport", transport)
      .Field("server", info.server_name)
      .Field("uptime_seconds", info.started_nanos > 0
                                   ? std::optional(Seconds(info.now_nanos - info.started_nanos))
                                   : std::nullopt);
}

void AddInfoFields(const ServerInfo& info, JsonWriter* json, const TableJsonHook& hook) {
  RecordWriter(json, &hook).AddFields(info);
}

void AddTableJson(const TableInfo& table, std::span<const std::string_view> names, JsonWriter* json) {
  json->BeginObject();
  RecordWriter writer(json);
  ForEachField<TableInfo>([&](const auto& field) {
    if (!field.json_name.empty() && std::ranges::find(names, field.json_name) != names.end()) {
      writer.AddField(table, field);
    }
  });
  json->End();
}

void AddSavedRowTableJson(const RowTableInfo& table, JsonWriter* json) {
  json->BeginObject()
      .Field("name", table.settings.name)
      .Field("version", table.version)
      .Field("rows", table.counts.rows)
      .Field("groups", table.counts.groups)
      .Field("created", table.counts.created)
      .Field("consumed", table.counts.consumed)
      .Field("acknowledged", table.counts.acknowledged)
      .Field("state_bytes", table.state_bytes);
  json->Key("settings");
  RecordWriter(json).AddValue(FieldKind::kPlain, table.settings);
  json->End();
}

}  // namespace reverb::internal
