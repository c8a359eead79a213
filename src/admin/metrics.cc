#include "admin/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "admin/admin_json.h"
#include "view/info_json.h"
#include "view/shown_text.h"

namespace reverb::internal {
namespace {

std::string MetricValue(double value) {
  if (std::isnan(value)) return "NaN";
  // The largest numbers stand for infinities.
  if (value >= std::numeric_limits<double>::max()) return "+Inf";
  if (value <= -std::numeric_limits<double>::max()) return "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return Format("%.0f", value);
  const std::string brief = Format("%.15g", value);
  return std::strtod(brief.c_str(), nullptr) == value ? brief : Format("%.17g", value);
}

void AddEscaped(std::string_view text, std::string* to) {
  while (!text.empty()) {
    const size_t size = Utf8Size(text);
    if (size == 0) {
      *to += "\xef\xbf\xbd";
    } else if (text[0] == '\\' || text[0] == '"') {
      (*to += '\\') += text[0];
    } else if (text[0] == '\n') {
      *to += "\\n";
    } else {
      *to += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
}

double SecondsOf(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

// A metric that every table has, with its name after "reverb_table_".
template <typename Info>
struct Metric {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const Info&);
};

constexpr Metric<TableInfo> kTableMetrics[] = {
    {"items", "gauge", "Items in the table.", [](const TableInfo& t) { return double(t.current_size); }},
    {"max_items", "gauge", "Bound of the items, max_size.",
     [](const TableInfo& t) { return double(t.max_size); }},
    {"bytes", "gauge", "Stored bytes of the chunks that items refer to; shared chunks count for each item.",
     [](const TableInfo& t) { return double(t.referenced_bytes); }},
    {"episodes", "gauge", "Episodes that items of the table belong to.",
     [](const TableInfo& t) { return double(t.num_episodes); }},
    {"inserts_total", "counter", "Inserted items.",
     [](const TableInfo& t) { return double(t.counters.inserts); }},
    {"samples_total", "counter", "Samples that were drawn.",
     [](const TableInfo& t) { return double(t.counters.samples); }},
    {"updates_total", "counter", "Priorities set on existing items.",
     [](const TableInfo& t) { return double(t.updates); }},
    {"deletes_total", "counter", "Items that clients deleted.",
     [](const TableInfo& t) { return double(t.explicit_deletes); }},
    {"evictions_total", "counter", "Items that the remover removed for new ones.",
     [](const TableInfo& t) { return double(t.evictions); }},
    {"expirations_total", "counter", "Items removed because of max_times_sampled.",
     [](const TableInfo& t) { return double(t.expirations); }},
    {"aged_out_total", "counter", "Items removed because of max_age.",
     [](const TableInfo& t) { return double(t.aged_out); }},
    {"unknown_keys_total", "counter", "Updates and deletes of keys that did not exist.",
     [](const TableInfo& t) { return double(t.unknown_keys); }},
    {"longest_wait_seconds", "gauge", "Longest wait of the calls that wait now.",
     [](const TableInfo& t) { return SecondsOf(t.longest_wait_nanos); }},
    {"limiter_cursor", "gauge",
     "Cursor of the rate limiter: inserts times samples_per_insert, minus samples.",
     [](const TableInfo& t) { return t.cursor; }},
    {"limiter_min", "gauge", "Lower bound of the cursor; samples wait there.",
     [](const TableInfo& t) { return t.rate_limiter.min_diff; }},
    {"limiter_max", "gauge", "Upper bound of the cursor; inserts wait there.",
     [](const TableInfo& t) { return t.rate_limiter.max_diff; }},
    {"limiter_min_size", "gauge", "Items that sampling waits for.",
     [](const TableInfo& t) { return double(t.rate_limiter.min_size_to_sample); }},
    {"limiter_samples_per_insert", "gauge", "Samples per insert that the rate limiter aims at.",
     [](const TableInfo& t) { return t.rate_limiter.samples_per_insert; }},
    {"samples_per_insert", "gauge", "Samples per insert so far; NaN before the first insert.",
     [](const TableInfo& t) {
       return t.counters.inserts > 0 ? double(t.counters.samples) / double(t.counters.inserts)
                                     : std::numeric_limits<double>::quiet_NaN();
     }},
    {"leased_items", "gauge", "Items that are leased.",
     [](const TableInfo& t) { return double(t.leases.leased); }},
    {"leases_granted_total", "counter", "Leases granted.",
     [](const TableInfo& t) { return double(t.leases.granted); }},
    {"leases_acknowledged_total", "counter", "Leases acknowledged.",
     [](const TableInfo& t) { return double(t.leases.acknowledged); }},
    {"leases_expired_total", "counter", "Leases that expired.",
     [](const TableInfo& t) { return double(t.leases.expired); }},
};

constexpr Metric<RowTableInfo> kRowTableMetrics[] = {
    {"rows", "gauge", "Rows in the table.", [](const RowTableInfo& t) { return double(t.counts.rows); }},
    {"max_rows", "gauge", "Bound of the rows.",
     [](const RowTableInfo& t) { return double(t.settings.max_rows); }},
    {"bytes", "gauge", "Bytes of the rows' data.",
     [](const RowTableInfo& t) { return double(t.counts.bytes); }},
    {"version", "gauge", "Version of the table.", [](const RowTableInfo& t) { return double(t.version); }},
    {"groups", "gauge", "Groups of rows.", [](const RowTableInfo& t) { return double(t.counts.groups); }},
    {"complete_groups", "gauge", "Groups whose rows are all there.",
     [](const RowTableInfo& t) { return double(t.counts.complete_groups); }},
    {"leases", "gauge", "Claims that are neither acknowledged nor released.",
     [](const RowTableInfo& t) { return double(t.counts.leases); }},
    {"state_bytes", "gauge", "Bytes of the caller's state.",
     [](const RowTableInfo& t) { return double(t.state_bytes); }},
    {"created_total", "counter", "Rows created.",
     [](const RowTableInfo& t) { return double(t.counts.created); }},
    {"updated_total", "counter", "Writes to existing rows.",
     [](const RowTableInfo& t) { return double(t.counts.updated); }},
    {"consumed_total", "counter", "Rows that all consumers have acknowledged.",
     [](const RowTableInfo& t) { return double(t.counts.consumed); }},
    {"dropped_stale_total", "counter", "Rows dropped because they were stale.",
     [](const RowTableInfo& t) { return double(t.counts.dropped_stale); }},
    {"deleted_total", "counter", "Rows that callers deleted or aborted.",
     [](const RowTableInfo& t) { return double(t.counts.deleted); }},
    {"refused_total", "counter", "Writes that were reported as aborted.",
     [](const RowTableInfo& t) { return double(t.counts.refused); }},
    {"claimed_total", "counter", "Rows claimed, for each consumer.",
     [](const RowTableInfo& t) { return double(t.counts.claimed); }},
    {"acknowledged_total", "counter", "Rows acknowledged, for each consumer.",
     [](const RowTableInfo& t) { return double(t.counts.acknowledged); }},
    {"released_total", "counter", "Rows released, for each consumer.",
     [](const RowTableInfo& t) { return double(t.counts.released); }},
    {"expired_total", "counter", "Rows of leases that expired.",
     [](const RowTableInfo& t) { return double(t.counts.expired); }},
    {"longest_wait_seconds", "gauge", "Longest wait of the calls that wait now.",
     [](const RowTableInfo& t) { return SecondsOf(t.longest_wait_nanos); }},
};

void AddServer(const AdminState& state, MetricsWriter* out) {
  const ServerInfo& info = state.info;
  out->Family("reverb_build_info", "gauge", "Version and commit of the server; always 1.");
  out->Add({{"version", state.version}, {"commit", state.commit}}, 1);
  out->Family("reverb_server_start_time_seconds", "gauge", "Start of the server since the Unix epoch.");
  out->Add({}, SecondsOf(info.started_nanos));
  out->Family("reverb_server_ready", "gauge", "Whether /readyz says that the server is ready.");
  out->Add({}, state.not_ready_reason ? 0 : 1);
  out->Family(
      "reverb_memory_bytes", "gauge",
      "Memory: stored chunks that items and rows refer to; parked for a checkpoint; of waiting items; other "
      "chunks in transit; messages being received; replies being sent; the index of tables; sessions of "
      "clients; resident memory of the process, which includes all of them.");
  const MemoryInfo& memory = info.memory;
  for (const auto& [part, bytes] :
       {std::pair("stored", memory.stored), std::pair("parked", memory.parked),
        std::pair("waiting", memory.waiting), std::pair("in_transit", memory.in_transit),
        std::pair("receiving", memory.receiving), std::pair("replies", memory.replies),
        std::pair("index", memory.index), std::pair("sessions", memory.sessions),
        std::pair("resident", state.resident_bytes)}) {
    out->Add({{"part", part}}, double(bytes));
  }
  if (memory.limit) {
    out->Family(
        "reverb_memory_limit_bytes", "gauge",
        "Bound of all parts but the resident memory, memory_limit. Inserts wait or evict when stored, "
        "parked and index take 13/16 of it.");
    out->Add({}, double(*memory.limit));
  }
  if (info.max_bytes) {
    out->Family("reverb_stored_limit_bytes", "gauge", "Bound of the stored bytes, max_bytes.");
    out->Add({}, double(*info.max_bytes));
  }
  out->Family("reverb_chunks", "gauge", "Chunks in memory.");
  out->Add({}, double(info.live_chunks));
  out->Family("reverb_connections", "gauge", "Connections of clients with open streams, by transport.");
  for (const auto& [transport, count] : state.connections)
    out->Add({{"transport", transport}}, double(count));
  out->Family("reverb_streams", "gauge", "Open streams, by kind; rows: calls on row tables that wait.");
  out->Add({{"kind", "insert"}}, double(state.insert_streams));
  out->Add({{"kind", "sample"}}, double(state.sample_streams));
  out->Add({{"kind", "calls"}}, double(state.call_streams));
  out->Add({{"kind", "rows"}}, double(state.row_calls));
  out->Family("reverb_messages_total", "counter", "Messages from and to clients in other processes.");
  out->Add({{"direction", "in"}}, double(state.traffic.messages_in));
  out->Add({{"direction", "out"}}, double(state.traffic.messages_out));
  out->Family("reverb_message_bytes_total", "counter",
              "Bytes of these messages, with data that is passed in shared memory.");
  out->Add({{"direction", "in"}}, double(state.traffic.bytes_in));
  out->Add({{"direction", "out"}}, double(state.traffic.bytes_out));
  out->Family("reverb_errors_total", "counter", "Requests and items that were refused, by status code.");
  for (const auto& [code, count] : state.errors) out->Add({{"code", code}}, double(count));
}

void AddStorageMetrics(const ServerInfo& info, MetricsWriter* out) {
  if (!info.storage_memory_limit) return;
  out->Family("reverb_storage_bytes", "gauge",
              "The disk tier: data in memory that can move to disk; data on disk; the files.");
  out->Add({{"part", "memory"}}, double(info.storage_memory_bytes));
  out->Add({{"part", "disk"}}, double(info.storage_disk_bytes));
  out->Add({{"part", "files"}}, double(info.storage_file_bytes));
  out->Family("reverb_storage_limit_bytes", "gauge", "The limits of the disk tier.");
  out->Add({{"part", "memory"}}, double(*info.storage_memory_limit));
  out->Add({{"part", "files"}}, double(info.storage_disk_limit.value_or(0)));
  out->Family("reverb_storage_written_bytes_total", "counter", "Data that was moved to disk.");
  out->Add({}, double(info.storage_written_bytes));
  out->Family("reverb_storage_read_bytes_total", "counter", "Data that was read from disk.");
  out->Add({}, double(info.storage_read_bytes));
  out->Family("reverb_storage_lost_chunks_total", "counter", "Chunks whose data on disk could not be read.");
  out->Add({}, double(info.storage_lost_chunks));
  out->Family("reverb_storage_failing", "gauge", "Whether data cannot be moved to disk.");
  out->Add({}, info.storage_error.empty() ? 0 : 1);
}

void AddCheckpointMetrics(const AdminState& state, MetricsWriter* out) {
  if (!state.checkpoints) return;
  const AdminCheckpoints& checkpoints = *state.checkpoints;
  const double now = SecondsOf(state.info.now_nanos);
  const double started = SecondsOf(state.info.started_nanos);
  out->Family("reverb_checkpoint_writes_total", "counter", "Checkpoints written since the start.");
  out->Add({}, double(checkpoints.count));
  out->Family("reverb_checkpoint_failures_total", "counter", "Checkpoints that could not be written.");
  out->Add({}, double(checkpoints.failures));
  out->Family("reverb_checkpoint_running", "gauge", "Whether a checkpoint is being written.");
  out->Add({}, checkpoints.is_running ? 1 : 0);
  out->Family("reverb_checkpoint_last_age_seconds", "gauge",
              "Time since the last checkpoint, or since the start if none was written.");
  out->Add({}, std::max(0.0, now - checkpoints.last_time_seconds.value_or(started)));
  out->Family("reverb_checkpoint_last_duration_seconds", "gauge",
              "Time that the last checkpoint took; 0 if none was written.");
  out->Add({}, checkpoints.last_duration_seconds.value_or(0));
  out->Family("reverb_checkpoint_last_bytes", "gauge", "Bytes that the last checkpoint wrote.");
  out->Add({}, double(checkpoints.last_bytes.value_or(0)));
  if (checkpoints.disk_free_bytes) {
    out->Family("reverb_checkpoint_disk_free_bytes", "gauge", "Free bytes of the checkpoints' file system.");
    out->Add({}, double(*checkpoints.disk_free_bytes));
  }
}

void AddTables(const AdminState& state, MetricsWriter* out) {
  const std::vector<TableInfo>& tables = state.info.tables;
  if (tables.empty()) return;
  for (const Metric<TableInfo>& metric : kTableMetrics) {
    out->Family("reverb_table_" + std::string(metric.name), metric.type, metric.help);
    for (const TableInfo& table : tables) out->Add({{"table", table.name}}, metric.value(table));
  }
  out->Family("reverb_table_waiting", "gauge", "Calls that wait now.");
  for (const TableInfo& table : tables) {
    out->Add({{"table", table.name}, {"operation", "insert"}}, double(table.waiting_inserts));
    out->Add({{"table", table.name}, {"operation", "sample"}}, double(table.waiting_samples));
  }
  out->Family("reverb_table_wait_seconds_total", "counter",
              "Time that calls have waited, by reason, counted when a wait ends.");
  for (const TableInfo& table : tables) {
    for (const bool of_inserts : {true, false}) {
      for (const auto& [reason, seconds] : WaitSeconds(table, of_inserts)) {
        out->Add({{"table", table.name},
                  {"operation", of_inserts ? "insert" : "sample"},
                  {"reason", WaitReasonWord(reason)}},
                 seconds);
      }
    }
  }
  struct Distribution {
    const char* name;
    const char* help;
    AdminHistogram AdminSurvey::*member;
  };
  constexpr Distribution kDistributions[] = {
      {"reverb_table_item_age_seconds",
       "Ages of the items in the table now, estimated from a sample of them; not cumulative over time.",
       &AdminSurvey::age_seconds},
      {"reverb_table_item_times_sampled", "How often the items in the table now were sampled; likewise.",
       &AdminSurvey::times_sampled},
      {"reverb_table_item_priority", "Priorities of the items in the table now; likewise.",
       &AdminSurvey::priority},
  };
  for (const Distribution& each : kDistributions) {
    out->Family(each.name, "histogram", each.help);
    for (const TableInfo& table : tables) {
      const auto survey = state.surveys.find(table.name);
      if (survey != state.surveys.end())
        out->AddHistogram({{"table", table.name}}, survey->second.*each.member);
    }
  }
}

void AddRowTables(const AdminState& state, MetricsWriter* out) {
  const std::vector<RowTableInfo>& tables = state.info.row_tables;
  if (tables.empty()) return;
  for (const Metric<RowTableInfo>& metric : kRowTableMetrics) {
    out->Family("reverb_row_table_" + std::string(metric.name), metric.type, metric.help);
    for (const RowTableInfo& table : tables) out->Add({{"table", table.settings.name}}, metric.value(table));
  }
  out->Family("reverb_row_table_rows_by_state", "gauge",
              "Rows that are open (not complete yet), stale, or reserved and not yet put.");
  for (const RowTableInfo& table : tables) {
    out->Add({{"table", table.settings.name}, {"state", "open"}}, double(table.counts.open));
    out->Add({{"table", table.settings.name}, {"state", "stale"}}, double(table.counts.stale));
    out->Add({{"table", table.settings.name}, {"state", "reserved"}}, double(table.counts.running));
  }
  out->Family(
      "reverb_row_table_consumer_rows", "gauge",
      "Rows of a consumer that are ready for its claims, leased, or consumed and still in the table.");
  for (const RowTableInfo& table : tables) {
    for (const RowConsumerInfo& consumer : table.consumers) {
      const auto add = [&](std::string_view in_state, int64_t rows) {
        out->Add({{"table", table.settings.name}, {"consumer", consumer.name}, {"state", in_state}},
                 double(rows));
      };
      add("ready", consumer.ready);
      add("leased", consumer.leased);
      add("consumed", consumer.consumed);
    }
  }
  out->Family("reverb_row_table_waiting", "gauge", "Calls that wait now.");
  for (const RowTableInfo& table : tables) {
    out->Add({{"table", table.settings.name}, {"operation", "write"}}, double(table.waiting_writes));
    out->Add({{"table", table.settings.name}, {"operation", "claim"}}, double(table.waiting_claims));
    out->Add({{"table", table.settings.name}, {"operation", "reservation"}},
             double(table.waiting_reservations));
  }
}

}  // namespace

void MetricsWriter::Family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + " ";
  text_ += help;
  text_ += "\n# TYPE " + name_ + " ";
  text_ += type;
  text_ += "\n";
}

void MetricsWriter::AddNamed(std::string_view suffix, const Labels& labels, double value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [name, label] : labels) {
    text_ += before;
    text_ += name;
    text_ += "=\"";
    AddEscaped(label, &text_);
    text_ += '"';
    before = ',';
  }
  if (!labels.empty()) text_ += '}';
  text_ += " " + MetricValue(value) + "\n";
}

void MetricsWriter::AddHistogram(const Labels& labels, const AdminHistogram& histogram) {
  int64_t sum = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    sum += histogram.counts[i];
    const std::string bound = i < histogram.bounds.size() ? MetricValue(histogram.bounds[i]) : "+Inf";
    Labels with_bound = labels;
    with_bound.emplace_back("le", bound);
    AddNamed("_bucket", with_bound, static_cast<double>(sum));
  }
  AddNamed("_sum", labels, histogram.sum);
  AddNamed("_count", labels, static_cast<double>(sum));
}

std::string MetricsText(const AdminState& state) {
  MetricsWriter out;
  AddServer(state, &out);
  AddStorageMetrics(state.info, &out);
  AddCheckpointMetrics(state, &out);
  AddTables(state, &out);
  AddRowTables(state, &out);
  return out.text();
}

}  // namespace reverb::internal
