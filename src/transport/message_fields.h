// message_fields.h — the fields of the messages in messages.h.
//
// Messages that carry data are not listed, since their encoding depends on it and on the state of the stream:
// InsertRequest (wire_insert.cc), SampleResponse and InspectResponse (wire_sample.cc).
#ifndef REVERB_TRANSPORT_MESSAGE_FIELDS_H_
#define REVERB_TRANSPORT_MESSAGE_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reverb/fields.h"
#include "reverb/item.h"
#include "reverb/server_info_fields.h"
#include "transport/messages.h"
#include "transport/wire.h"

namespace reverb::internal {

// Represents a tag of a row in a message.
struct RowTagRecord {
  std::string name;
  uint32_t kind = 0;  // index of RowTag::value
  int64_t integer = 0;
  double real = 0;
  std::string text;
};

// Represents a row in a message: all but its data.
struct RowHeader {
  std::string key;
  std::string group;
  int64_t version = 0;
  bool is_open = false;
  std::vector<RowTagRecord> tags;
  std::vector<std::string> columns;
  std::vector<uint64_t> num_segments;
  bool is_requeued = false;
  bool is_stale = false;
  std::vector<std::string> leased_by;
  std::vector<std::string> consumed_by;
};

// Represents a Status in a message.
struct StatusRecord {
  uint32_t code = 0;
  uint32_t detail = 0;
  std::string message;
};

}  // namespace reverb::internal

namespace reverb {

template <>
inline constexpr uint32_t kNumValues<BatchCheck> = kNumBatchChecks;
template <>
inline constexpr uint32_t kNumValues<internal::RowsVerb> = internal::kNumRowsVerbs;
template <>
inline constexpr uint32_t kNumValues<RowSettlement> = kNumRowSettlements;
template <>
inline constexpr uint32_t kNumValues<RowEnding> = kNumRowEndings;

// One field per line.
// clang-format off

template <>
inline constexpr auto kFields<internal::StatusRecord> = FieldList("Status",
    Field("code", 1, &internal::StatusRecord::code),
    Field("detail", 2, &internal::StatusRecord::detail),
    Field("message", 3, &internal::StatusRecord::message).UpTo(FieldLimit::kText));

template <>
inline constexpr auto kFields<internal::Hello> = FieldList("Hello",
    Field("min_version", 1, &internal::Hello::min_version),
    Field("max_version", 2, &internal::Hello::max_version),
    Field("session_id", 3, &internal::Hello::session_id),
    Field("client_name", 4, &internal::Hello::client_name),
    Field("receive_window_bytes", 5, &internal::Hello::receive_window_bytes),
    Field("max_response_bytes", 6, &internal::Hello::max_response_bytes));

template <>
inline constexpr auto kFields<internal::Limits> = FieldList("Limits",
    Field("max_message_bytes", 1, &internal::Limits::max_message_bytes),
    Field("max_chunk_bytes", 2, &internal::Limits::max_chunk_bytes),
    Field("insert_window_bytes", 3, &internal::Limits::insert_window_bytes),
    Field("max_item_bytes", 4, &internal::Limits::max_item_bytes));

template <>
inline constexpr auto kFields<internal::Welcome> = FieldList("Welcome",
    Field("version", 1, &internal::Welcome::version),
    Field("server_life_id", 2, &internal::Welcome::server_life_id),
    Field("server_name", 3, &internal::Welcome::server_name),
    Field("applied_through", 4, &internal::Welcome::applied_through),
    Field("limits", 5, &internal::Welcome::limits),
    Field("shard", 25, &internal::Welcome::shard));

// --- Insert ---

template <>
inline constexpr auto kFields<internal::Rejection> = FieldList("Rejection",
    Field("number", 1, &internal::Rejection::number),
    Field("status", 2, &internal::Rejection::status));

template <>
inline constexpr auto kFields<internal::WaitState> = FieldList("WaitState",
    Field("table", 1, &internal::WaitState::table),
    Field("reason", 2, &internal::WaitState::reason),
    Field("nanos", 3, &internal::WaitState::waited),
    Field("text", 4, &internal::WaitState::text).UpTo(FieldLimit::kText));

template <>
inline constexpr auto kFields<internal::InsertReply> = FieldList("InsertResponse",
    Field("welcome", 1, &internal::InsertReply::welcome),
    Field("confirmed_through", 2, &internal::InsertReply::confirmed_through),
    Field("rejections", 3, &internal::InsertReply::rejections),
    Field("waiting", 4, &internal::InsertReply::waiting),
    Field("insert_window_bytes", 5, &internal::InsertReply::insert_window_bytes));

// --- Sample ---

template <>
inline constexpr auto kFields<internal::SampleStreamMessage> = FieldList("SampleRequest",
    Field("hello", 1, &internal::SampleStreamMessage::hello),
    Field("request_id", 2, &internal::SampleStreamMessage::request, &internal::SampleRequest::request_id),
    Field("table", 3, &internal::SampleStreamMessage::request, &internal::SampleRequest::table),
    Field("count", 4, &internal::SampleStreamMessage::request, &internal::SampleRequest::count),
    Field("timeout_nanos", 5, &internal::SampleStreamMessage::request, &internal::SampleRequest::timeout)
        .As(FieldKind::kSaturating),
    Field("taken_bytes", 7, &internal::SampleStreamMessage::request, &internal::SampleRequest::taken_bytes),
    Field("shared_columns", 9, &internal::SampleStreamMessage::request,
        &internal::SampleRequest::shared_columns),
    Field("all_or_nothing", 10, &internal::SampleStreamMessage::request, &internal::SampleRequest::rules,
        &internal::BatchRules::all_or_nothing),
    Field("check", 11, &internal::SampleStreamMessage::request, &internal::SampleRequest::rules,
        &internal::BatchRules::check),
    Field("unsupported_dtypes", 12, &internal::SampleStreamMessage::request, &internal::SampleRequest::rules,
        &internal::BatchRules::unsupported_dtypes),
    Field("timesteps", 13, &internal::SampleStreamMessage::request, &internal::SampleRequest::rules,
        &internal::BatchRules::timesteps),
    Field("lease_nanos", 20, &internal::SampleStreamMessage::request, &internal::SampleRequest::lease)
        .As(FieldKind::kSaturating),
    Field("end_stream", 21, &internal::SampleStreamMessage::request, &internal::SampleRequest::end_stream),
    Field("wants_mass", 25, &internal::SampleStreamMessage::request, &internal::SampleRequest::wants_mass));

template <>
inline constexpr auto kFields<internal::TableMass> = FieldList("TableMass",
    Field("is_weighted", 1, &internal::TableMass::is_weighted),
    Field("mass", 2, &internal::TableMass::mass),
    Field("size", 3, &internal::TableMass::size));

// All of a sample but its data. wire_sample.cc encodes it by hand, for speed; tests compare it with this list.
template <>
inline constexpr auto kFields<internal::Sample> = FieldList("SampleInfo",
    Field("key", 1, &internal::Sample::key).As(FieldKind::kFixed),
    Field("priority", 2, &internal::Sample::priority),
    Field("probability", 3, &internal::Sample::probability),
    Field("table_size", 4, &internal::Sample::table_size),
    Field("times_sampled", 5, &internal::Sample::times_sampled),
    Field("rate_limited", 6, &internal::Sample::rate_limited),
    Field("inserted_at_nanos", 7, &internal::Sample::inserted_at).As(FieldKind::kZigZag),
    Field("lease_id", 20, &internal::Sample::lease_id).As(FieldKind::kFixed));

// --- Single calls ---

template <>
inline constexpr auto kFields<KeyPriority> = FieldList("KeyPriority",
    Field("key", 1, &KeyPriority::key).As(FieldKind::kFixed),
    Field("priority", 2, &KeyPriority::priority));

template <>
inline constexpr auto kFields<internal::MutateRequest> = FieldList("MutatePrioritiesRequest",
    Field("table", 1, &internal::MutateRequest::table),
    Field("updates", 2, &internal::MutateRequest::updates).UpTo(FieldLimit::kUpdates),
    Field("deletes", 3, &internal::MutateRequest::deletes).As(FieldKind::kFixed).UpTo(FieldLimit::kUpdates));

template <>
inline constexpr auto kFields<LeaseGrant> = FieldList("LeaseGrant",
    Field("key", 1, &LeaseGrant::key).As(FieldKind::kFixed),
    Field("id", 2, &LeaseGrant::id).As(FieldKind::kFixed));

template <>
inline constexpr auto kFields<internal::SettleLeasesRequest> = FieldList("SettleLeasesRequest",
    Field("table", 1, &internal::SettleLeasesRequest::table),
    Field("acks", 2, &internal::SettleLeasesRequest::acks).UpTo(FieldLimit::kUpdates),
    Field("releases", 3, &internal::SettleLeasesRequest::releases).UpTo(FieldLimit::kUpdates),
    Field("extends", 4, &internal::SettleLeasesRequest::extends).UpTo(FieldLimit::kUpdates),
    Field("extension_nanos", 5, &internal::SettleLeasesRequest::extension).As(FieldKind::kSaturating));

template <>
inline constexpr auto kFields<LeaseOutcome> = FieldList("SettleLeasesResponse",
    Field("settled", 1, &LeaseOutcome::settled),
    Field("gone", 2, &LeaseOutcome::gone),
    Field("expired", 3, &LeaseOutcome::expired));

template <>
inline constexpr auto kFields<internal::SetRateLimiterRequest> = FieldList("SetRateLimiterRequest",
    Field("table", 1, &internal::SetRateLimiterRequest::table),
    Field("rate_limiter", 2, &internal::SetRateLimiterRequest::options));

template <>
inline constexpr auto kFields<internal::CreateTableRequest> = FieldList("CreateTableRequest",
    Field("table", 1, &internal::CreateTableRequest::table),
    Field("exist_ok", 2, &internal::CreateTableRequest::exist_ok));

template <>
inline constexpr auto kFields<internal::ChangeTableRequest> = FieldList("ChangeTableRequest",
    Field("table", 1, &internal::ChangeTableRequest::table),
    Field("max_size", 2, &internal::ChangeTableRequest::changes, &TableChanges::max_size),
    Field("max_times_sampled", 3, &internal::ChangeTableRequest::changes, &TableChanges::max_times_sampled),
    Field("max_age_nanos", 4, &internal::ChangeTableRequest::changes, &TableChanges::max_age),
    Field("rate_limiter", 5, &internal::ChangeTableRequest::changes, &TableChanges::rate_limiter),
    Field("max_bytes", 6, &internal::ChangeTableRequest::changes, &TableChanges::max_bytes));

template <>
inline constexpr auto kFields<internal::InspectRequest> = FieldList("InspectRequest",
    Field("table", 1, &internal::InspectRequest::table),
    Field("cursor", 2, &internal::InspectRequest::cursor),
    Field("count", 3, &internal::InspectRequest::count));

// --- Row tables ---

template <>
inline constexpr auto kFields<internal::RowsCall> = FieldList("RowsCall",
    Field("verb", 1, &internal::RowsCall::verb),
    Field("table", 2, &internal::RowsCall::table),
    Field("timeout_nanos", 3, &internal::RowsCall::timeout)
        .As(FieldKind::kSaturating),
    Field("columns", 4, &internal::RowsCall::write, &RowWriteMode::columns),
    Field("write_version", 5, &internal::RowsCall::write, &RowWriteMode::version).As(FieldKind::kZigZag),
    Field("overwrite", 6, &internal::RowsCall::write, &RowWriteMode::overwrite),
    Field("append", 7, &internal::RowsCall::write, &RowWriteMode::append),
    Field("open", 8, &internal::RowsCall::write, &RowWriteMode::open),
    Field("create_rows", 9, &internal::RowsCall::write, &RowWriteMode::create),
    Field("same_length_as", 10, &internal::RowsCall::write, &RowWriteMode::same_length_as),
    Field("write_reservation", 11, &internal::RowsCall::write, &RowWriteMode::reservation).As(FieldKind::kFixed),
    Field("consumer", 20, &internal::RowsCall::claim, &RowClaim::consumer),
    Field("holder", 21, &internal::RowsCall::claim, &RowClaim::holder),
    Field("claim_count", 22, &internal::RowsCall::claim, &RowClaim::count),
    Field("at_least", 23, &internal::RowsCall::claim, &RowClaim::at_least),
    Field("needs", 24, &internal::RowsCall::claim, &RowClaim::needs),
    Field("select", 25, &internal::RowsCall::claim, &RowClaim::select),
    Field("where", 26, &internal::RowsCall::claim, &RowClaim::where).UpTo(FieldLimit::kText),
    Field("max_tokens", 27, &internal::RowsCall::claim, &RowClaim::max_tokens),
    Field("token_column", 28, &internal::RowsCall::claim, &RowClaim::token_column),
    Field("whole_groups", 29, &internal::RowsCall::claim, &RowClaim::whole_groups),
    Field("lease_nanos", 30, &internal::RowsCall::claim, &RowClaim::lease).As(FieldKind::kSaturating),
    Field("ranks", 31, &internal::RowsCall::claim, &RowClaim::ranks),
    Field("rank", 32, &internal::RowsCall::claim, &RowClaim::rank),
    Field("step", 33, &internal::RowsCall::claim, &RowClaim::step).As(FieldKind::kZigZag),
    Field("drop_last", 34, &internal::RowsCall::claim, &RowClaim::drop_last),
    Field("equal_rows", 35, &internal::RowsCall::claim, &RowClaim::equal_rows),
    Field("split_groups", 36, &internal::RowsCall::claim, &RowClaim::split_groups),
    Field("keys", 40, &internal::RowsCall::keys).UpTo(FieldLimit::kUpdates),
    Field("lease_id", 41, &internal::RowsCall::lease_id).As(FieldKind::kFixed),
    Field("settlement", 42, &internal::RowsCall::settlement),
    Field("extension_nanos", 43, &internal::RowsCall::extension).As(FieldKind::kSaturating),
    Field("ending", 44, &internal::RowsCall::ending),
    Field("cursor", 45, &internal::RowsCall::cursor),
    Field("count", 46, &internal::RowsCall::count),
    Field("version", 47, &internal::RowsCall::version).As(FieldKind::kZigZag),
    Field("reservation", 48, &internal::RowsCall::reservation).As(FieldKind::kFixed),
    Field("create", 49, &internal::RowsCall::create),
    Field("exist_ok", 50, &internal::RowsCall::exist_ok),
    Field("state", 51, &internal::RowsCall::state).AsBytes(FieldLimit::kRowState),
    Field("call_id", 52, &internal::RowsCall::call_id).As(FieldKind::kFixed));

template <>
inline constexpr auto kFields<internal::RowsResult> = FieldList("RowsResult",
    Field("version", 1, &internal::RowsResult::version).As(FieldKind::kZigZag),
    Field("count", 2, &internal::RowsResult::count),
    Field("refused", 3, &internal::RowsResult::refused).UpTo(FieldLimit::kUpdates),
    Field("columns", 4, &internal::RowsResult::columns),
    Field("lease_id", 5, &internal::RowsResult::lease_id).As(FieldKind::kFixed),
    Field("outcome", 6, &internal::RowsResult::outcome),
    Field("cursor", 7, &internal::RowsResult::cursor),
    Field("reservation", 8, &internal::RowsResult::reservation).As(FieldKind::kFixed),
    Field("was_known", 9, &internal::RowsResult::was_known),
    Field("tables", 10, &internal::RowsResult::tables),
    Field("state", 11, &internal::RowsResult::state).AsBytes(FieldLimit::kRowState),
    Field("step", 12, &internal::RowsResult::step).As(FieldKind::kZigZag));

template <>
inline constexpr auto kFields<internal::RowTagRecord> = FieldList("RowTag",
    Field("name", 1, &internal::RowTagRecord::name),
    Field("kind", 2, &internal::RowTagRecord::kind),
    Field("integer", 3, &internal::RowTagRecord::integer).As(FieldKind::kZigZag),
    Field("real", 4, &internal::RowTagRecord::real),
    Field("text", 5, &internal::RowTagRecord::text));

template <>
inline constexpr auto kFields<internal::RowHeader> = FieldList("RowHeader",
    Field("key", 1, &internal::RowHeader::key),
    Field("group", 2, &internal::RowHeader::group),
    Field("version", 3, &internal::RowHeader::version).As(FieldKind::kZigZag),
    Field("is_open", 4, &internal::RowHeader::is_open),
    Field("tags", 5, &internal::RowHeader::tags),
    Field("columns", 6, &internal::RowHeader::columns),
    Field("num_segments", 7, &internal::RowHeader::num_segments).As(FieldKind::kFixed),
    Field("is_requeued", 8, &internal::RowHeader::is_requeued),
    Field("is_stale", 9, &internal::RowHeader::is_stale),
    Field("leased_by", 10, &internal::RowHeader::leased_by),
    Field("consumed_by", 11, &internal::RowHeader::consumed_by));

// clang-format on

}  // namespace reverb

#endif  // REVERB_TRANSPORT_MESSAGE_FIELDS_H_
