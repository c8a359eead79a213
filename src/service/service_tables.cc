// The requests to a server that are single calls: information, changes of tables, inspection.
#include <algorithm>
#include <functional>
#include <utility>

#include "core/fetch_samples.h"
#include "service/sample_stream_session.h"
#include "service/service.h"
#include "service/service_change.h"
#include "service/writer_session.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

// Describes the first setting in which two tables differ; empty if they are the same.
std::string SettingsDifference(const TableSettings& present, const TableSettings& wanted) {
  const auto differ = [](const char* setting, const std::string& now, const std::string& asked) {
    return std::string(setting) + " is " + now + ", not " + asked;
  };
  const auto nanos = [](int64_t age) { return std::to_string(age) + " ns"; };
  if (!SelectTheSame(present.sampler, wanted.sampler)) {
    return differ("sampler", present.sampler.ToString(), wanted.sampler.ToString());
  }
  if (!SelectTheSame(present.remover, wanted.remover)) {
    return differ("remover", present.remover.ToString(), wanted.remover.ToString());
  }
  if (present.layout != wanted.layout) {
    return differ("layout", std::string(LayoutPolicyName(present.layout)),
                  std::string(LayoutPolicyName(wanted.layout)));
  }
  if (present.signature != wanted.signature) return "the signatures differ";
  // What ChangeTable() can change comes last.
  if (present.max_size != wanted.max_size) {
    return differ("max_size", std::to_string(present.max_size), std::to_string(wanted.max_size));
  }
  if (std::max(present.max_times_sampled, 0) != std::max(wanted.max_times_sampled, 0)) {
    return differ("max_times_sampled", std::to_string(present.max_times_sampled),
                  std::to_string(wanted.max_times_sampled));
  }
  if (present.max_age_nanos != wanted.max_age_nanos) {
    return differ("max_age", nanos(present.max_age_nanos), nanos(wanted.max_age_nanos));
  }
  if (present.max_bytes != wanted.max_bytes) {
    return differ("max_bytes", std::to_string(present.max_bytes), std::to_string(wanted.max_bytes));
  }
  if (present.rate_limiter != wanted.rate_limiter) {
    return differ("the rate limiter", "(" + present.rate_limiter.ToString() + ")",
                  "(" + wanted.rate_limiter.ToString() + ")");
  }
  return "";
}

// Returns the settings with the limits of the time when the table was created.
TableSettings AsCreated(TableSettings settings, const TableOptions& created) {
  settings.max_size = created.max_size;
  settings.max_times_sampled = created.max_times_sampled;
  settings.max_age_nanos = created.max_age.count();
  settings.max_bytes = created.max_bytes;
  settings.rate_limiter = created.rate_limiter;
  return settings;
}

}  // namespace

// --- Information ----------------------------------------------------------------------------------

Result<ServerInfo> Service::Info() {
  ServerInfo info;
  info.server_life_id = life_id_;
  info.server_name = options_.server_name;
  for (const std::shared_ptr<ConcurrentTable>& table : tables()) info.tables.push_back(table->Info());
  for (const std::shared_ptr<ConcurrentRows>& table : rows_.tables())
    info.row_tables.push_back(table->Info());
  const ChunkStore::Stats stats = options_.store->stats();
  info.live_chunks = stats.live_chunks;
  info.live_bytes = stats.live_bytes;
  info.stored_bytes = stats.stored_bytes;
  info.max_bytes = options_.store->options().max_bytes;
  const MemoryBudget::Usage memory = options_.store->budget().usage();
  info.memory = {
      .limit = options_.store->budget().limit(),
      .used = memory.total(),
      .stored = memory.stored,
      .parked = memory.parked,
      .waiting = memory.waiting,
      .in_transit = std::max<int64_t>(0, memory.chunks - memory.stored - memory.parked - memory.waiting),
      .receiving = memory.receiving,
      .replies = memory.replies,
      .index = memory.index,
      .sessions = memory.sessions};
  if (const ChunkTier* const tier = options_.store->tier(); tier != nullptr) {
    const ChunkTier::Stats storage = tier->stats();
    info.storage_memory_bytes = storage.memory_bytes;
    info.storage_memory_limit = tier->options().memory_limit;
    info.storage_disk_bytes = storage.disk_bytes;
    info.storage_file_bytes = storage.file_bytes;
    info.storage_disk_limit = tier->options().disk_limit;
    info.storage_written_bytes = storage.written_bytes;
    info.storage_read_bytes = storage.read_bytes;
    info.storage_lost_chunks = storage.lost_chunks;
    info.storage_error = storage.error;
  }
  info.now_nanos = options_.clock->WallNanos();
  info.started_nanos = started_nanos_;
  info.waiters = Waiters(info.tables);
  MutexLock lock(&mu_);
  info.local_path = local_.path;
  info.boot_id = local_.boot_id;
  info.user_id = local_.user_id;
  info.shard = options_.shard;
  return info;
}

Status Service::CheckInfoCanBeRead(ConcurrentTable* one_more) {
  REVERB_ASSIGN_OR_RETURN(ServerInfo info, Info());
  if (one_more != nullptr) info.tables.push_back(one_more->Info());
  const std::string bytes = EncodeServerInfo(info).Flatten();
  const ByteSlice slice(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const Result<ServerInfo> read = DecodeServerInfo(ByteSlices(&slice, 1));
  if (read.ok()) return Status::Ok();
  return Status::InvalidArgument("clients cannot read the description of this server's " +
                                 std::to_string(info.tables.size() + info.row_tables.size()) +
                                 " tables: " + std::string(read.status().message()) +
                                 "; use fewer tables, smaller signatures or shorter names");
}

// --- Changes --------------------------------------------------------------------------------------

Status Service::Mutate(const MutateRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->Mutate(request.updates, request.deletes);
}

Result<LeaseOutcome> Service::SettleLeases(const SettleLeasesRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  if (!request.extends.empty() && request.extension <= Duration(0)) {
    return Status::InvalidArgument("table \"" + request.table + "\": leases are extended by " +
                                   std::to_string(request.extension.count()) +
                                   " ns; give a positive time, or release them");
  }
  LeaseOutcome outcome = table->Acknowledge(request.acks);
  outcome += table->Release(request.releases);
  outcome += table->Extend(request.extends, request.extension);
  return outcome;
}

Status Service::Reset(std::string_view table) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> found, FindTable(table));
  found->Reset();
  return Status::Ok();
}

Status Service::SetRateLimiter(const SetRateLimiterRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->SetRateLimiter(request.options);
}

Status Service::CreateTable(const CreateTableRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(TableOptions options, TableOptions::FromSettings(request.table));
  options.created_by_client = true;
  const TableSettings wanted = options.Settings();
  // A server that starts only warns, since dm-reverb accepts such tables.
  if (const auto contradictions = FindContradictions(wanted); !contradictions.empty()) {
    return Status::InvalidArgument(contradictions.front());
  }
  const std::string& name = wanted.name;
  REVERB_ASSIGN_OR_RETURN(
      const std::shared_ptr<ConcurrentTable> table,
      ConcurrentTable::Create(std::move(options), {.store = options_.store, .clock = options_.clock}));
  if (rows_.Has(name)) {
    return Status::AlreadyExists("there is a row table named \"" + name + "\"; use another name");
  }
  // One at a time: tables that clients can read one by one may be too many together.
  MutexLock creating(&creating_mu_);
  std::shared_ptr<ConcurrentTable> present;
  {
    MutexLock lock(&tables_mu_);
    if (const auto found = by_name_.find(name); found != by_name_.end()) present = found->second;
  }
  if (present == nullptr) {
    REVERB_RETURN_IF_ERROR(CheckInfoCanBeRead(table.get()));
    {
      MutexLock lock(&tables_mu_);
      by_name_.emplace(name, table);
      tables_.push_back(table);
    }
    Log(LogLevel::kInfo, "table \"" + name + "\" was created by a client",
        {{"event", kEventTable}, {"table", name}});
    return Status::Ok();
  }
  const TableSettings now = present->Info();
  std::string difference = SettingsDifference(now, wanted);
  // Workers that all create the table need not know that its limits were changed since.
  if (SettingsDifference(AsCreated(now, present->options()), wanted).empty()) difference.clear();
  if (request.exist_ok && difference.empty()) return Status::Ok();
  return Status::AlreadyExists("table \"" + name + "\" exists already" +
                               (difference.empty() ? ", with the same settings; pass exist_ok to use it"
                                                   : ", with other settings: " + difference +
                                                         "; change or remove it, or use another name"));
}

Status Service::RemoveTable(std::string_view table) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> removed, FindTable(table));
  {
    MutexLock lock(&tables_mu_);
    // Another client may have been faster.
    if (std::erase(tables_, removed) > 0) by_name_.erase(removed->name());
  }
  Log(LogLevel::kInfo,
      "table \"" + removed->name() + "\" with its " + std::to_string(removed->size()) +
          " items was removed by a client",
      {{"event", kEventTable}, {"table", removed->name()}});
  removed->Remove();
  return Status::Ok();
}

Status Service::ChangeTable(const ChangeTableRequest& request) {
  const Change change(this);
  REVERB_RETURN_IF_ERROR(change.status());
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  return table->Change(request.changes);
}

Result<InspectReply> Service::Inspect(const InspectRequest& request) {
  // Bounds one reply; the cursor continues after it.
  constexpr uint64_t kMaxBytes = uint64_t{4} << 20;
  constexpr size_t kMaxItems = 10'000;
  constexpr int64_t kItemsAtATime = 16;
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<ConcurrentTable> table, FindTable(request.table));
  InspectReply reply;
  uint64_t bytes = 0;
  uint64_t decoded_bytes = 0;
  const auto exceeds = [&] { return bytes > kMaxBytes || decoded_bytes > kDecodedBytesPerReply; };
  const int64_t size = table->size();
  reply.next_cursor = request.cursor;
  const size_t wanted = std::min<size_t>(request.count, kMaxItems);
  bool is_full = false;
  while (reply.items.size() < wanted && !is_full) {
    const int64_t asked = std::min(static_cast<int64_t>(wanted - reply.items.size()), kItemsAtATime);
    const uint64_t cursor = reply.next_cursor;
    std::vector<Sample> items = table->Peek(asked, &reply.next_cursor);
    const bool is_last = static_cast<int64_t>(items.size()) < asked;
    size_t fit = 0;
    for (; fit < items.size(); ++fit) {
      const SampleSize more = EstimateBytes(items[fit].trajectory);
      bytes += more.bytes;
      decoded_bytes += more.decoded_bytes;
      if (exceeds() && (fit > 0 || !reply.items.empty())) break;
    }
    is_full = exceeds();
    if (fit < items.size()) {  // the others follow in the next call
      items.clear();
      reply.next_cursor = cursor;
      if (fit > 0) items = table->Peek(static_cast<int64_t>(fit), &reply.next_cursor);
    } else if (is_last) {
      reply.next_cursor = 0;
      is_full = true;
    }
    if (ChunkTier* const tier = store().tier(); tier != nullptr) {
      FetchedSamples fetched = FetchSamplesAndWait(tier, table, std::move(items));
      REVERB_RETURN_IF_ERROR(fetched.status);
      items = std::move(fetched.samples);
    }
    for (Sample& item : items) {
      item.table_size = size;
      reply.items.push_back(std::move(item));
    }
  }
  return reply;
}

std::shared_ptr<PendingCall> Service::StartRows(RowsRequest request, const RowsDone& done) {
  const RowsVerb verb = request.call.verb;
  const bool only_reads = verb == RowsVerb::kGet || verb == RowsVerb::kList || verb == RowsVerb::kInfo ||
                          verb == RowsVerb::kGetState;
  if (only_reads) return rows_.Start(std::move(request), done);
  // Operations that wait end with rows_.Close(), before changes are refused.
  const Change change(this);
  if (const Status status = change.status(); !status.ok()) {
    (void)done(status);
    return nullptr;
  }
  return rows_.Start(std::move(request), done);
}

}  // namespace reverb::internal
