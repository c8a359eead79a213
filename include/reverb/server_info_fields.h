// server_info_fields.h — the fields of ServerInfo and of the records in it.
#ifndef REVERB_SERVER_INFO_FIELDS_H_
#define REVERB_SERVER_INFO_FIELDS_H_

#include "reverb/fields.h"
#include "reverb/rate_limiter.h"
#include "reverb/row_table_options.h"
#include "reverb/selector.h"
#include "reverb/server_info.h"
#include "reverb/table_info.h"

namespace reverb {

template <>
inline constexpr uint32_t kNumValues<SelectorOptions::Kind> =
    static_cast<uint32_t>(SelectorOptions::Kind::kPrioritized) + 1;
template <>
inline constexpr uint32_t kNumValues<WaitReason> = kNumWaitReasons;
template <>
inline constexpr uint32_t kNumValues<LayoutPolicy> = kNumLayoutPolicies;
template <>
inline constexpr uint32_t kNumValues<RowOrder> = kNumRowOrders;
template <>
inline constexpr uint32_t kNumValues<WhenStale> = kNumWhenStale;

// One field per line.
// clang-format off

// The seed is not sent.
template <>
inline constexpr auto kFields<SelectorOptions> = FieldList("Selector",
    Field("kind", 1, &SelectorOptions::kind),
    Field("priority_exponent", 2, &SelectorOptions::priority_exponent),
    Field("custom_name", 3, &SelectorOptions::custom_name));

template <>
inline constexpr auto kFields<RateLimiterOptions> = FieldList("RateLimiter",
    Field("samples_per_insert", 1, &RateLimiterOptions::samples_per_insert),
    Field("min_size_to_sample", 2, &RateLimiterOptions::min_size_to_sample),
    Field("min_diff", 3, &RateLimiterOptions::min_diff),
    Field("max_diff", 4, &RateLimiterOptions::max_diff));

// Field 1 is the reason: the index in TableInfo::waits.
template <>
inline constexpr auto kFields<WaitStats> = FieldList("WaitStats",
    Field("count", 2, &WaitStats::count),
    Field("total_nanos", 3, &WaitStats::total_nanos).As(FieldKind::kNanos));

template <>
inline constexpr auto kFields<TableInfo> = FieldList("TableInfo",
    Field("name", 1, &TableInfo::name),
    Field("current_size", 8, &TableInfo::current_size).Json("size"),
    Field("max_size", 4, &TableInfo::max_size),
    Field("referenced_bytes", 15, &TableInfo::referenced_bytes).Json("bytes"),
    Field("sampler", 2, &TableInfo::sampler),
    Field("remover", 3, &TableInfo::remover),
    Field("max_times_sampled", 5, &TableInfo::max_times_sampled)
        .As(FieldKind::kSigned).InSum(FieldSum::kFirst),
    Field("max_age_nanos", 38, &TableInfo::max_age_nanos)
        .As(FieldKind::kNanos).InSum(FieldSum::kFirst).Json("max_age_seconds"),
    Field("max_bytes", 41, &TableInfo::max_bytes),
    Field("rate_limiter", 6, &TableInfo::rate_limiter),
    Field("cursor", 0, &TableInfo::cursor),
    Field("signature", 7, &TableInfo::signature).AsBytes(FieldLimit::kSignature),
    Field("layout", 37, &TableInfo::layout).InSum(FieldSum::kFirst),
    Field("structure", 36, &TableInfo::structure).AsBytes(FieldLimit::kStructure).NotInJson(),
    Field("inserts", 12, &TableInfo::counters, &RateLimiterCounters::inserts),
    Field("samples", 13, &TableInfo::counters, &RateLimiterCounters::samples),
    Field("deletes", 14, &TableInfo::counters, &RateLimiterCounters::deletes),
    Field("uncounted_inserts", 40, &TableInfo::counters, &RateLimiterCounters::uncounted_inserts),
    Field("evictions", 16, &TableInfo::evictions),
    Field("expirations", 17, &TableInfo::expirations),
    Field("aged_out", 39, &TableInfo::aged_out),
    Field("explicit_deletes", 18, &TableInfo::explicit_deletes),
    Field("updates", 19, &TableInfo::updates).Json("priority_updates"),
    Field("unknown_keys", 20, &TableInfo::unknown_keys),
    Field("num_episodes", 9, &TableInfo::num_episodes).Json("episodes"),
    Field("num_deleted_episodes", 10, &TableInfo::num_deleted_episodes).NotInJson(),
    Field("num_unique_samples", 11, &TableInfo::num_unique_samples).NotInJson(),
    Field("inserts_per_second", 21, &TableInfo::inserts_per_second),
    Field("samples_per_second", 22, &TableInfo::samples_per_second),
    Field("waiting_inserts", 23, &TableInfo::waiting_inserts),
    Field("waiting_samples", 24, &TableInfo::waiting_samples),
    Field("insert_wait_reason", 25, &TableInfo::insert_wait_reason).InSum(FieldSum::kFirstSet),
    Field("sample_wait_reason", 26, &TableInfo::sample_wait_reason).InSum(FieldSum::kFirstSet),
    Field("longest_wait_nanos", 27, &TableInfo::longest_wait_nanos)
        .As(FieldKind::kNanos).InSum(FieldSum::kLargest).Json("longest_wait_seconds"),
    Field("waits", 28, &TableInfo::waits).NotInJson(),
    Field("inserting_nanos", 29, &TableInfo::work_time, &TableWorkTime::inserting_nanos)
        .As(FieldKind::kNanos).NotInJson(),
    Field("sampling_nanos", 30, &TableInfo::work_time, &TableWorkTime::sampling_nanos)
        .As(FieldKind::kNanos).NotInJson(),
    Field("waiting_for_inserts_nanos", 31, &TableInfo::work_time, &TableWorkTime::waiting_for_inserts_nanos)
        .As(FieldKind::kNanos).NotInJson(),
    Field("waiting_for_sampling_nanos", 32, &TableInfo::work_time, &TableWorkTime::waiting_for_sampling_nanos)
        .As(FieldKind::kNanos).NotInJson(),
    Field("idle_nanos", 33, &TableInfo::work_time, &TableWorkTime::idle_nanos)
        .As(FieldKind::kNanos).NotInJson(),
    Field("leased_items", 50, &TableInfo::leases, &LeaseCounts::leased),
    Field("leases_granted", 51, &TableInfo::leases, &LeaseCounts::granted),
    Field("leases_acknowledged", 52, &TableInfo::leases, &LeaseCounts::acknowledged),
    Field("leases_expired", 53, &TableInfo::leases, &LeaseCounts::expired),
    Field("leases_late", 54, &TableInfo::leases, &LeaseCounts::late),
    Field("closed", 34, &TableInfo::closed).InSum(FieldSum::kLeast));

template <>
inline constexpr auto kFields<WaiterInfo> = FieldList("Waiter",
    Field("table", 1, &WaiterInfo::table),
    Field("is_insert", 2, &WaiterInfo::is_insert).Json("operation"),
    Field("reason", 3, &WaiterInfo::reason),
    Field("count", 5, &WaiterInfo::count),
    Field("waited_nanos", 4, &WaiterInfo::waited_nanos).As(FieldKind::kNanos).Json("seconds"),
    Field("client_name", 6, &WaiterInfo::client_name).Json("client"),
    Field("address", 7, &WaiterInfo::address));

template <>
inline constexpr auto kFields<StalenessOptions> = FieldList("Staleness",
    Field("max_lag", 1, &StalenessOptions::max_lag),
    Field("when_stale", 2, &StalenessOptions::when_stale),
    Field("batch", 3, &StalenessOptions::batch));

template <>
inline constexpr auto kFields<RowTableOptions> = FieldList("RowTableSettings",
    Field("name", 1, &RowTableOptions::name),
    Field("max_rows", 2, &RowTableOptions::max_rows),
    Field("group_size", 3, &RowTableOptions::group_size),
    Field("consumers", 4, &RowTableOptions::consumers),
    Field("staleness", 8, &RowTableOptions::staleness),
    Field("order", 5, &RowTableOptions::order),
    Field("max_running", 6, &RowTableOptions::max_running),
    Field("drop_consumed", 7, &RowTableOptions::drop_consumed));

template <>
inline constexpr auto kFields<RowCounts> = FieldList("RowCounts",
    Field("rows", 1, &RowCounts::rows),
    Field("bytes", 19, &RowCounts::bytes),
    Field("open", 2, &RowCounts::open),
    Field("stale", 3, &RowCounts::stale),
    Field("groups", 4, &RowCounts::groups),
    Field("complete_groups", 5, &RowCounts::complete_groups),
    Field("running", 6, &RowCounts::running),
    Field("leases", 7, &RowCounts::leases),
    Field("accepted", 8, &RowCounts::accepted),
    Field("created", 9, &RowCounts::created),
    Field("updated", 10, &RowCounts::updated),
    Field("consumed", 11, &RowCounts::consumed),
    Field("dropped_stale", 12, &RowCounts::dropped_stale),
    Field("deleted", 13, &RowCounts::deleted),
    Field("refused", 14, &RowCounts::refused),
    Field("claimed", 15, &RowCounts::claimed),
    Field("acknowledged", 16, &RowCounts::acknowledged),
    Field("released", 17, &RowCounts::released),
    Field("expired", 18, &RowCounts::expired));

template <>
inline constexpr auto kFields<RowConsumerInfo> = FieldList("RowConsumerInfo",
    Field("name", 1, &RowConsumerInfo::name),
    Field("ready", 2, &RowConsumerInfo::ready),
    Field("leased", 3, &RowConsumerInfo::leased),
    Field("consumed", 4, &RowConsumerInfo::consumed));

// The name is that of the settings, which are shown last.
template <>
inline constexpr auto kFields<RowTableInfo> = FieldList("RowTableInfo",
    Field("name", 0, &RowTableInfo::settings, &RowTableOptions::name),
    Field("version", 4, &RowTableInfo::version).As(FieldKind::kZigZag).InSum(FieldSum::kLargest),
    Field("counts", 2, &RowTableInfo::counts).Flat(),
    Field("consumers", 3, &RowTableInfo::consumers),
    Field("waiting_writes", 5, &RowTableInfo::waiting_writes),
    Field("waiting_claims", 6, &RowTableInfo::waiting_claims),
    Field("waiting_reservations", 7, &RowTableInfo::waiting_reservations),
    Field("longest_wait_nanos", 9, &RowTableInfo::longest_wait_nanos)
        .As(FieldKind::kNanos).InSum(FieldSum::kLargest).Json("longest_wait_seconds"),
    Field("write_reason", 10, &RowTableInfo::write_reason).UpTo(FieldLimit::kText),
    Field("claim_reason", 8, &RowTableInfo::claim_reason).UpTo(FieldLimit::kText),
    Field("reservation_reason", 11, &RowTableInfo::reservation_reason).UpTo(FieldLimit::kText),
    Field("state_bytes", 12, &RowTableInfo::state_bytes),
    Field("settings", 1, &RowTableInfo::settings));

template <>
inline constexpr auto kFields<MemoryInfo> = FieldList("MemoryInfo",
    Field("limit", 1, &MemoryInfo::limit),
    Field("used", 2, &MemoryInfo::used),
    Field("stored", 3, &MemoryInfo::stored),
    Field("parked", 4, &MemoryInfo::parked),
    Field("waiting", 5, &MemoryInfo::waiting),
    Field("in_transit", 6, &MemoryInfo::in_transit),
    Field("receiving", 7, &MemoryInfo::receiving),
    Field("replies", 8, &MemoryInfo::replies),
    Field("index", 9, &MemoryInfo::index),
    Field("sessions", 10, &MemoryInfo::sessions));

// The JSON of a server starts with its address, name and uptime, which are not from this list.
template <>
inline constexpr auto kFields<ServerInfo> = FieldList("InfoResponse",
    Field("server_life_id", 1, &ServerInfo::server_life_id).NotInJson(),
    Field("server_name", 2, &ServerInfo::server_name).NotInJson(),
    Field("now_nanos", 8, &ServerInfo::now_nanos).As(FieldKind::kNanos).InSum(FieldSum::kFirst).NotInJson(),
    Field("started_nanos", 9, &ServerInfo::started_nanos)
        .As(FieldKind::kNanos).InSum(FieldSum::kLeast).NotInJson(),
    Field("stored_bytes", 6, &ServerInfo::stored_bytes),
    Field("live_bytes", 5, &ServerInfo::live_bytes),
    Field("max_bytes", 7, &ServerInfo::max_bytes),
    Field("memory", 18, &ServerInfo::memory),
    Field("live_chunks", 4, &ServerInfo::live_chunks).Json("chunks"),
    Field("storage_memory_bytes", 56, &ServerInfo::storage_memory_bytes),
    Field("storage_memory_limit", 57, &ServerInfo::storage_memory_limit),
    Field("storage_disk_bytes", 58, &ServerInfo::storage_disk_bytes),
    Field("storage_file_bytes", 59, &ServerInfo::storage_file_bytes),
    Field("storage_disk_limit", 60, &ServerInfo::storage_disk_limit),
    Field("storage_written_bytes", 61, &ServerInfo::storage_written_bytes),
    Field("storage_read_bytes", 62, &ServerInfo::storage_read_bytes),
    Field("storage_lost_chunks", 63, &ServerInfo::storage_lost_chunks),
    Field("storage_error", 64, &ServerInfo::storage_error).UpTo(FieldLimit::kText),
    Field("local_path", 11, &ServerInfo::local_path),
    Field("boot_id", 12, &ServerInfo::boot_id).NotInJson(),
    Field("user_id", 16, &ServerInfo::user_id).NotInJson(),
    Field("shard", 55, &ServerInfo::shard).InSum(FieldSum::kFirst),
    Field("tables", 3, &ServerInfo::tables),
    Field("row_tables", 17, &ServerInfo::row_tables),
    Field("waiters", 10, &ServerInfo::waiters));

// clang-format on

}  // namespace reverb

#endif  // REVERB_SERVER_INFO_FIELDS_H_
