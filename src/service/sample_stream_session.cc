#include "service/sample_stream_session.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/fetch_samples.h"
#include "tensor/prefetch.h"

namespace reverb::internal {

SampleSize EstimateBytes(const Trajectory& trajectory) {
  SampleSize size{.bytes = 64};
  bool is_raw = true;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    const uint32_t slices = trajectory.num_slices(c);
    size.slices += slices;
    for (uint32_t s = 0; s < slices; ++s) {
      const SliceView slice = trajectory.slice(c, s);
      const PackedChunkHeader header = slice.chunk->header();
      // Raw rows are sent alone, others with their blocks.
      if (const uint64_t row_bytes = header.raw_row_bytes(slice.chunk_column); row_bytes > 0) {
        size.bytes += slice.length * row_bytes;
        continue;
      }
      const ColumnView column = header.column(slice.chunk_column);
      if (column.codec == Codec::kRaw && column.dtype != DType::kString) continue;  // empty rows
      is_raw = false;
      size.bytes += TouchedBlocks(column, slice.offset, slice.length).payload_size;
    }
  }
  size.decoded_bytes = is_raw ? size.bytes : trajectory.DecodedBytes(kDecodedBytesPerReply);
  return size;
}

namespace {

// Prefetches what is encoded next.
class EncodePrefetcher {
 public:
  // `payloads`: they are copied.
  explicit EncodePrefetcher(bool payloads) : payloads_(payloads) {}

  void FetchAhead(const std::vector<Sample>& items, size_t at) {
    constexpr size_t kSlices = 24, kHeaders = 12, kPayload = 6, kHeaderBytes = 192, kPayloadLines = 8;
    if (at + kSlices < items.size()) PrefetchSlices(items[at + kSlices].trajectory);
    // The chunks of items whose rows are known are not read.
    if (at + kHeaders < items.size() && items[at + kHeaders].trajectory.row_layout() == 0) {
      PrefetchHeaders(items[at + kHeaders].trajectory, kHeaderBytes);
    }
    if (!payloads_ || at + kPayload >= items.size()) return;
    const Trajectory& trajectory = items[at + kPayload].trajectory;
    if (trajectory.row_layout() == 0) return PrefetchPayload(trajectory, kPayloadLines);
    if (trajectory.row_layout() != row_layout_) LearnSizes(trajectory);
    for (size_t c = 0; c < bytes_.size(); ++c) {
      PrefetchBytes(trajectory.rows()[c], std::min(bytes_[c], kPayloadLines * kCacheLine));
    }
  }

 private:
  void LearnSizes(const Trajectory& trajectory) {
    row_layout_ = trajectory.row_layout();
    bytes_.clear();
    trajectory.ForEachSingleSlice([&](uint32_t /*column*/, const SliceView& slice, bool /*squeeze*/) {
      bytes_.push_back(slice.length * slice.chunk->header().raw_row_bytes(slice.chunk_column));
      return true;
    });
  }

  const bool payloads_;
  uint32_t row_layout_ = 0;
  std::vector<uint64_t> bytes_;  // of the rows of each column of that layout
};

// Returns whether both consist of raw rows of the same sizes, so that their estimates are the same too.
bool HaveSameRows(const Trajectory& a, const Trajectory& b) {
  return a.row_layout() != 0 && a.row_layout() == b.row_layout();
}

// Returns the leases of samples of one request, all of which are leased or none.
std::vector<LeaseGrant> GrantsOf(std::span<const Sample> samples) {
  std::vector<LeaseGrant> grants;
  if (samples.empty() || samples.front().lease_id == 0) return grants;
  for (const Sample& sample : samples) grants.push_back({.key = sample.key, .id = sample.lease_id});
  return grants;
}

TableMass MassOf(ConcurrentTable& table) {
  const auto [mass, size] = table.Mass();
  return {.is_weighted = mass.has_value(), .mass = mass.value_or(0), .size = size};
}

}  // namespace

SampleStreamSession::SampleStreamSession(std::shared_ptr<Service> service, std::shared_ptr<SamplePeer> peer,
                                         uint64_t stream_id, uint64_t window_bytes, const Hello& hello)
    : service_(std::move(service)),
      stream_id_(stream_id),
      window_bytes_(window_bytes),
      max_response_bytes_(hello.max_response_bytes == 0 ? kDefaultMaxResponseBytes
                                                        : hello.max_response_bytes),
      shares_memory_(peer->shares_memory()),
      sends_references_(peer->sends_references()),
      client_name_(hello.client_name),
      address_(peer->address()),
      peer_(std::move(peer)) {}

void SampleStreamSession::OnRequest(SampleRequest request) {
  if (request.end_stream) return End(Status::Cancelled("the client has ended the stream"));
  bool too_many = false;
  {
    MutexLock lock(&mu_);
    const uint64_t claimed = std::min(unclaimed_bytes_, request.taken_bytes);
    unclaimed_bytes_ -= claimed;
    early_credit_ += request.taken_bytes - claimed;
    read_wanted_ = true;
    if (!request.table.empty()) {
      too_many = requests_.size() >= service_->limits().max_waiting_requests;
      if (!too_many) requests_.push_back(std::move(request));
    }
  }
  if (too_many) {
    return End(Status::ResourceExhausted("more than " +
                                         std::to_string(service_->limits().max_waiting_requests) +
                                         " sample requests wait on this stream; send fewer at a time"));
  }
  Proceed();
}

void SampleStreamSession::Proceed() {
  std::shared_ptr<SamplePeer> peer;
  Status status;
  {
    MutexLock lock(&mu_);
    if (!strand_.Run([this]() REQUIRES(mu_) { return Step(); })) return;
    peer = peer_;
    status = stream_status_;
  }
  if (peer != nullptr) peer->End(std::move(status));
}

Strand::Next SampleStreamSession::Step() {
  const std::shared_ptr<SamplePeer> peer = peer_;
  if (peer == nullptr) return Strand::Next::kWait;
  // One action per step: after End() has closed the strand nothing more is drawn or sent.
  if (ReadNext(peer.get()) || BeginNextRequest() || DrawNext() || SendNext(peer.get())) {
    return Strand::Next::kAgain;
  }
  if (!CanSend()) return Strand::Next::kWait;
  if (read_error_ && drawn_.empty()) {
    stream_status_ = *read_error_;
    has_ended_ = true;
    return Strand::Next::kClose;
  }
  return done_ && requests_.empty() ? Strand::Next::kClose : Strand::Next::kWait;
}

bool SampleStreamSession::ReadNext(SamplePeer* peer) {
  if (!read_wanted_ || !greeted_ || done_) return false;
  read_wanted_ = false;
  mu_.Unlock();
  peer->ReadNext();
  mu_.Lock();
  return true;
}

bool SampleStreamSession::DrawNext() {
  if (!unread_.empty()) [[unlikely]] {
    if (drawing_ || end_.has_value() || !MayFetch()) return false;
    drawing_ = true;
    const std::shared_ptr<ConcurrentTable> table = table_;
    mu_.Unlock();
    FetchNextPart(table);
    mu_.Lock();
    return true;
  }
  const int64_t count = NextDraw();
  if (count == 0) return false;
  drawing_ = true;
  const std::shared_ptr<ConcurrentTable> table = table_;
  const std::optional<Duration> timeout = requests_.front().timeout;
  const BatchOrder order{.rules = requests_.front().rules, .first = first_, .lease = requests_.front().lease};
  const bool is_ahead = !drawn_.empty();
  mu_.Unlock();
  is_ahead ? DrawAhead(table, count, order) : Draw(table, count, timeout, order);
  mu_.Lock();
  return true;
}

bool SampleStreamSession::SendNext(SamplePeer* peer) {
  if (!CanSend()) return false;
  const std::shared_ptr<ConcurrentTable> table = table_;  // NextReply() may end the request
  const bool wants_mass = table != nullptr && !requests_.empty() && requests_.front().wants_mass;
  std::optional<SampleReply> reply = NextReply();
  if (!reply) return false;
  const size_t samples = reply->samples.size();
  const std::vector<LeaseGrant> leases = GrantsOf(reply->samples);
  ready_ = false;
  early_credit_ = 0;
  mu_.Unlock();
  if (wants_mass) reply->mass = MassOf(*table);
  const SamplePeer::Sent sent = peer->Reply(*std::move(reply));
  const bool has_closed = sent.bytes == 0 && !sent.ready;
  if (has_closed && !leases.empty()) table->Release(leases);
  mu_.Lock();
  unclaimed_bytes_ += sent.bytes - std::min(sent.bytes, early_credit_);
  // OnWritten() may have been called already.
  if (!sent.ready && !ready_ && !shares_memory_) reply_charge_.Set(static_cast<int64_t>(sent.bytes));
  ready_ |= sent.ready;
  if (has_closed && leases.empty()) CountUndelivered(table.get(), samples);
  return true;
}

bool SampleStreamSession::BeginNextRequest() {
  if (table_ != nullptr || end_.has_value() || requests_.empty()) return false;
  const SampleRequest& request = requests_.front();
  Result<std::shared_ptr<ConcurrentTable>> table = service_->FindTable(request.table);
  if (!table.ok()) {
    end_ = std::move(table).status();
  } else if (request.count == 0 && request.wants_mass) {
    table_ = *std::move(table);
    end_ = Status::Ok();
  } else if (request.count < 1) {
    end_ = Status::InvalidArgument("table \"" + request.table + "\": " + std::to_string(request.count) +
                                   " samples requested; request at least 1");
  } else if (request.rules.all_or_nothing && request.count > kMaxWholeBatch) {
    end_ = Status::InvalidArgument("table \"" + request.table + "\": " + std::to_string(request.count) +
                                   " samples requested together (all_or_nothing); request at most " +
                                   std::to_string(kMaxWholeBatch));
  } else if (request.lease < Duration(0)) {
    end_ = Status::InvalidArgument("table \"" + request.table + "\": a lease of " +
                                   std::to_string(request.lease.count()) +
                                   " ns was requested; request a positive time, or none");
  } else {
    table_ = *std::move(table);
    to_draw_ = request.count;
  }
  return true;
}

int64_t SampleStreamSession::NextDraw() const {
  if (table_ == nullptr || drawing_ || to_draw_ == 0 || end_.has_value()) return 0;
  // A batch is drawn together, and sent in as many replies as it takes.
  const BatchRules& rules = requests_.front().rules;
  const bool is_whole = rules.all_or_nothing || requests_.front().lease > Duration(0) ||
                        (rules.check != BatchCheck::kNone && table_->max_times_sampled() >= 1);
  if (service_->store().tier() != nullptr) [[unlikely]] {
    if (!MayFetch() || ahead_would_wait_) return 0;
    if (is_whole) return to_draw_;
    int64_t fit = 4 * kFirstDraw;
    if (bytes_per_sample_ > 0)
      fit = static_cast<int64_t>(static_cast<double>(TieredDrawBytes()) / bytes_per_sample_);
    return std::min(to_draw_, std::clamp<int64_t>(fit, 1, kMaxTieredDraw));
  }
  if (shares_memory_) {
    return drawn_.empty() ? std::min(to_draw_, is_whole ? to_draw_ : kMaxDraw) : 0;
  }
  // The next draw waits until the drawn samples were sent.
  if (unclaimed_bytes_ >= service_->WindowBytes(window_bytes_) || HasEnough()) return 0;
  if (is_whole) return to_draw_;
  int64_t fit = kFirstDraw;
  if (bytes_per_sample_ > 0) fit = static_cast<int64_t>(static_cast<double>(kReplyBytes) / bytes_per_sample_);
  return std::min(to_draw_, std::clamp<int64_t>(fit, 1, kReplySamples));
}

uint64_t SampleStreamSession::TieredDrawBytes() const {
  // A stream holds two parts, and another one that its client has not taken.
  const auto share = static_cast<uint64_t>(service_->budget().shares().transit);
  return service_->WindowBytes(std::min(kTieredDrawBytes, std::max(share / 16, kMinTieredDrawBytes)));
}

bool SampleStreamSession::MayFetch() const {
  if (end_.has_value() || read_error_) return false;
  if (!shares_memory_ && unclaimed_bytes_ >= service_->WindowBytes(window_bytes_)) return false;
  if (drawn_.empty()) return true;
  // What can be sent now is sent first.
  const bool is_sending = num_sent_ > 0 || !CanSend();
  return is_sending && ahead_.empty() && service_->budget().TransitLevel() == MemoryLevel::kRoomy;
}

bool SampleStreamSession::HasEnough() const { return !drawn_.empty() || end_.has_value(); }

uint64_t SampleStreamSession::MaxReplyBytes() const {
  // Leaves room for headers, which are not counted.
  return std::min(max_response_bytes_ / 8, kReplyBytes);
}

Status SampleStreamSession::CheckDrawn(const ConcurrentTable& table, const Sample& item,
                                       const SampleSize& size) const {
  constexpr uint64_t kMaxHeader = 512;  // of each slice, with all that belongs to it
  if (size.bytes + size.slices * kMaxHeader <= max_response_bytes_) return Status::Ok();
  const uint64_t bytes = MaxSampleBytes(item.trajectory);
  if (bytes <= max_response_bytes_) return Status::Ok();
  return Status::ResourceExhausted(
      "table \"" + table.name() + "\": item " + std::to_string(item.key) + " was sampled and takes about " +
      std::to_string(bytes) + " bytes, more than the " + std::to_string(max_response_bytes_) +
      " that this client accepts; raise its max_response_bytes, or delete the item");
}

void SampleStreamSession::Draw(const std::shared_ptr<ConcurrentTable>& table, int64_t count,
                               std::optional<Duration> timeout, const BatchOrder& order) {
  // Tries without waiting first: then many streams draw and encode in parallel, whereas callbacks of a table
  // run one at a time.
  std::vector<Sample> items;
  if (timeout && *timeout <= Duration(0)) {
    Status status = table->Sample(count, /*allow_partial=*/true, {.timeout = timeout}, &items, order);
    FetchDrawn(table, std::move(items), std::move(status));
    return;
  }
  ConcurrentTable::Attempt attempt = table->TrySample(count, &items, order);
  if (attempt.progress > 0 || !attempt.status.ok()) {
    FetchDrawn(table, std::move(items), std::move(attempt.status));
    return;
  }

  uint64_t sequence = 0;
  {
    MutexLock lock(&mu_);
    sequence = ++draw_sequence_;
    blocked_since_ = service_->clock()->Now();
  }
  service_->OnWaitBegins();
  ConcurrentTable::Handle operation = table->SampleAsync(
      count, /*allow_partial=*/true, timeout,
      [self = shared_from_this(), table](Operation& done) { self->OnDrawn(table, done); }, order);
  bool cancel = false;
  {
    MutexLock lock(&mu_);
    if (drawing_ && draw_sequence_ == sequence) operation_ = operation;
    cancel = peer_ == nullptr;
  }
  if (cancel) table->Cancel(operation);
}

void SampleStreamSession::DrawAhead(const std::shared_ptr<ConcurrentTable>& table, int64_t count,
                                    const BatchOrder& order) {
  std::vector<Sample> items;
  ConcurrentTable::Attempt attempt = table->TrySample(count, &items, order);
  if (attempt.progress > 0) {
    FetchDrawn(table, std::move(items), std::move(attempt.status));
    return;
  }
  // Waits, or fails, once the drawn samples were sent.
  MutexLock lock(&mu_);
  drawing_ = false;
  ahead_would_wait_ = !drawn_.empty();
}

void SampleStreamSession::OnDrawn(const std::shared_ptr<ConcurrentTable>& table, Operation& done) {
  if (FetchDrawn(table, std::move(done.own_samples), std::move(done.status))) Proceed();
}

bool SampleStreamSession::FetchDrawn(const std::shared_ptr<ConcurrentTable>& table, std::vector<Sample> items,
                                     Status status) {
  if (service_->store().tier() == nullptr || items.empty()) [[likely]] {
    TakeDrawn(*table, std::move(items), std::move(status));
    return true;
  }
  bool has_client = false;
  {
    MutexLock lock(&mu_);
    operation_.reset();  // does not wait for the table any more
    has_client = peer_ != nullptr;
    if (has_client) {
      unread_.assign(std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
      unread_status_ = std::move(status);
    }
  }
  if (has_client) return FetchNextPart(table);
  // Not TakeDrawn(), which reads the data.
  DropUndelivered(table.get(), items);
  MutexLock lock(&mu_);
  drawing_ = false;
  return true;
}

void SampleStreamSession::DropUndelivered(ConcurrentTable* table, std::span<const Sample> samples) const {
  const std::vector<LeaseGrant> leases = GrantsOf(samples);
  if (leases.empty()) return CountUndelivered(table, samples.size());
  table->Release(leases);
}

bool SampleStreamSession::FetchNextPart(const std::shared_ptr<ConcurrentTable>& table) {
  std::vector<Sample> part;
  Status status;
  {
    MutexLock lock(&mu_);
    const uint64_t most = TieredDrawBytes();
    uint64_t bytes = 0;
    absl::flat_hash_set<const Chunk*> chunks;
    while (!unread_.empty() && bytes < most) {
      unread_.front().trajectory.ForEachChunk([&](const Chunk* chunk) {
        if (chunks.insert(chunk).second) bytes += chunk->payload_size();
      });
      part.push_back(std::move(unread_.front()));
      unread_.pop_front();
    }
    if (unread_.empty()) status = std::move(unread_status_);
  }
  // Set by the first of two: the samples are taken, and FetchSamples() has returned. The second one proceeds.
  const auto is_first_done = std::make_shared<std::atomic<bool>>(false);
  FetchSamples(service_->store().tier(), table, std::move(part),
               [self = shared_from_this(), table, status, is_first_done](FetchedSamples fetched) {
                 if (!fetched.unread.empty()) self->DropUndelivered(table.get(), fetched.unread);
                 // Those whose data is lost are drawn again, unless the request has ended. After another error, the
                 // client connects again, with pauses: the error may pass.
                 self->TakeDrawn(*table, std::move(fetched.samples), status, std::move(fetched.status));
                 if (is_first_done->exchange(true, std::memory_order_acq_rel)) self->Proceed();
               });
  return is_first_done->exchange(true, std::memory_order_acq_rel);
}

void SampleStreamSession::TakeDrawn(ConcurrentTable& table, std::vector<Sample> items, Status status,
                                    Status read_error) {
  uint64_t bytes = 0;
  std::vector<Sample> unread;
  std::vector<SampleSize> sizes;
  if (!shares_memory_) {
    sizes.reserve(items.size());
    EncodePrefetcher prefetcher(/*payloads=*/!sends_references_);
    for (size_t i = 0; i < items.size(); ++i) {
      prefetcher.FetchAhead(items, i);
      if (i > 0 && HaveSameRows(items[i].trajectory, items[i - 1].trajectory)) {
        sizes.push_back(sizes.back());
        bytes += sizes.back().bytes;
        continue;
      }
      sizes.push_back(EstimateBytes(items[i].trajectory));
      if (Status fits = CheckDrawn(table, items[i], sizes.back()); !fits.ok()) [[unlikely]] {
        DropUndelivered(&table, std::span(items).subspan(i));
        status = std::move(fits);
        items.resize(i);
        break;
      }
      bytes += sizes.back().bytes;
    }
  }
  if (shares_memory_ && service_->store().tier() != nullptr) [[unlikely]] {
    for (const Sample& item : items) bytes += EstimateBytes(item.trajectory).bytes;
  }
  mu_.Lock();
  drawing_ = false;
  operation_.reset();
  to_draw_ -= static_cast<int64_t>(items.size());
  if (peer_ == nullptr) {
    mu_.Unlock();
    DropUndelivered(&table, items);
    return;
  }
  if (!items.empty()) bytes_per_sample_ = static_cast<double>(bytes) / static_cast<double>(items.size());
  if (!items.empty() && first_.empty() && requests_.front().rules.check != BatchCheck::kNone) {
    first_ = items.front().trajectory;
  }
  // Nothing is ahead: see MayFetch().
  ahead_ = std::move(items);
  ahead_sizes_ = std::move(sizes);
  if (drawn_.empty()) TakeAhead();
  if (!read_error.ok()) {
    read_error_ = std::move(read_error);
    unread = TakeUnread();
  } else if (!status.ok()) {
    end_ = std::move(status);
    unread = TakeUnread();
  } else if (to_draw_ == 0) {
    end_ = Status::Ok();
  }
  mu_.Unlock();
  if (!unread.empty()) DropUndelivered(&table, unread);
}

void SampleStreamSession::TakeAhead() {
  drawn_ = std::exchange(ahead_, {});
  drawn_sizes_ = std::exchange(ahead_sizes_, {});
  num_sent_ = 0;
  ahead_would_wait_ = false;
}

std::vector<Sample> SampleStreamSession::TakeUnread() {
  std::vector<Sample> unread(std::make_move_iterator(unread_.begin()),
                             std::make_move_iterator(unread_.end()));
  unread_.clear();
  return unread;
}

void SampleStreamSession::CountUndelivered(const ConcurrentTable* table, size_t samples) const {
  if (table == nullptr || samples == 0) return;
  const std::string at = address_.empty() ? "" : (client_name_.empty() ? "at " : " at ") + address_;
  service_->CountUndelivered(*table, static_cast<int64_t>(samples), client_name_ + at);
}

std::optional<SampleReply> SampleStreamSession::NextReply() {
  const bool has_samples = !requests_.empty() && HasEnough();
  if (greeted_ && !has_samples) return std::nullopt;
  SampleReply reply;
  if (has_samples) reply = TakeReply();
  if (!greeted_) reply.welcome = service_->MakeWelcome(0);
  greeted_ = true;
  return reply;
}

size_t SampleStreamSession::NumInReply() const {
  const uint64_t most_bytes = MaxReplyBytes();
  const size_t most_slices = std::min<size_t>(kReplySlices, max_response_bytes_ / 1024);
  const size_t most = std::min(kReplySamples, drawn_.size() - num_sent_);
  SampleSize size;
  size_t count = 0;
  for (; count < most; ++count) {
    const SampleSize& more = drawn_sizes_[num_sent_ + count];
    size.bytes += more.bytes;
    size.decoded_bytes += more.decoded_bytes;
    size.slices += more.slices;
    if (count > 0 && (size.bytes > most_bytes || size.decoded_bytes > kDecodedBytesPerReply ||
                      size.slices > most_slices)) {
      break;
    }
  }
  return count;
}

SampleReply SampleStreamSession::TakeReply() {
  SampleReply reply;
  const SampleRequest& request = requests_.front();
  reply.request_id = request.request_id;
  reply.shared_columns = request.shared_columns;
  const size_t count = shares_memory_ ? drawn_.size() : NumInReply();
  if (count == drawn_.size()) {
    reply.samples = std::exchange(drawn_, {});
  } else {
    const auto from = drawn_.begin() + static_cast<ptrdiff_t>(num_sent_);
    reply.samples.assign(std::make_move_iterator(from),
                         std::make_move_iterator(from + static_cast<ptrdiff_t>(count)));
    num_sent_ += count;
    if (num_sent_ == drawn_.size()) drawn_.clear();
  }
  if (drawn_.empty()) TakeAhead();
  if (drawn_.empty() && end_.has_value()) {
    reply.end = std::exchange(end_, std::nullopt);
    if (IsRefusal(*reply.end)) LogRefusedClient(Client(), request.table, *reply.end);
    table_.reset();
    to_draw_ = 0;
    first_ = {};  // a stream that waits for requests must not keep an item's data
    requests_.pop_front();
  }
  return reply;
}

void SampleStreamSession::AddWait(std::vector<WaiterInfo>* waiters) const {
  const TimePoint now = service_->clock()->Now();
  MutexLock lock(&mu_);
  if (!operation_ || table_ == nullptr) return;
  waiters->push_back({.table = table_->name(),
                      .waited_nanos = (now - blocked_since_).count(),
                      .count = to_draw_,
                      .client_name = client_name_,
                      .address = address_});
}

bool SampleStreamSession::TakeLongWait(Duration after, std::vector<LongWait>* waits) {
  const TimePoint now = service_->clock()->Now();
  MutexLock lock(&mu_);
  if (peer_ == nullptr || address_.empty() || !operation_ || table_ == nullptr) return false;
  const Duration waited = now - blocked_since_;
  if (waited < after || logged_draw_ == draw_sequence_) return true;
  logged_draw_ = draw_sequence_;
  waits->push_back({.waiter = {.table = table_->name(),
                               .waited_nanos = waited.count(),
                               .count = to_draw_,
                               .client_name = client_name_,
                               .address = address_},
                    .session = std::to_string(stream_id_)});
  return true;
}

void SampleStreamSession::OnWritten() {
  {
    MutexLock lock(&mu_);
    ready_ = true;
    reply_charge_.Set(0);
  }
  Proceed();
}

void SampleStreamSession::OnDone() {
  {
    MutexLock lock(&mu_);
    done_ = true;
  }
  Proceed();
}

void SampleStreamSession::End(Status status) {
  std::shared_ptr<SamplePeer> peer;
  {
    MutexLock lock(&mu_);
    if (peer_ == nullptr || strand_.is_closed()) return;
    stream_status_ = status;
    has_ended_ = true;
    if (IsRefusal(status)) LogRefusedClient(Client(), "", status);
    if (!strand_.Close()) return;  // the running Proceed() ends the stream
    peer = peer_;
  }
  peer->End(std::move(status));
}

void SampleStreamSession::OnGone() {
  std::shared_ptr<SamplePeer> peer;
  std::shared_ptr<ConcurrentTable> table;
  ConcurrentTable::Handle operation;
  std::vector<Sample> undelivered;
  bool has_closed = false;
  {
    MutexLock lock(&mu_);
    peer = std::move(peer_);
    peer_ = nullptr;
    operation = operation_;
    table = table_;
    undelivered = TakeUnread();
    for (std::vector<Sample>* const samples : {&drawn_, &ahead_}) {
      const size_t sent = samples == &drawn_ ? num_sent_ : 0;
      undelivered.insert(undelivered.end(),
                         std::make_move_iterator(samples->begin() + static_cast<ptrdiff_t>(sent)),
                         std::make_move_iterator(samples->end()));
      samples->clear();
    }
    num_sent_ = 0;
    reply_charge_.Set(0);
    has_closed = done_ || has_ended_;
  }
  if (operation) table->Cancel(operation);
  if (!undelivered.empty()) DropUndelivered(table.get(), undelivered);
  // Clients close most streams by cancelling them, which looks the same here.
  if (!has_closed && !address_.empty()) {
    LogFields fields = {{"event", kEventDisconnect}};
    if (table != nullptr) fields.push_back({"table", table->name()});
    Log(LogLevel::kDebug, "the sampler " + Client().ToString() + " disconnected",
        Client().Fields(std::move(fields)));
  }
  service_->StreamGone(stream_id_);
}

}  // namespace reverb::internal
