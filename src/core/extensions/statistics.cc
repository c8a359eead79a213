#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "reverb/extensions.h"
#include "tensor/byte_io.h"

namespace reverb {
namespace internal {
namespace {

using Count = StatisticsSnapshot::Count;
using PriorityRange = StatisticsSnapshot::PriorityRange;

void Add(const ItemView& item, Count* count) {
  ++count->items;
  count->bytes += item.bytes;
}

void Add(double priority, PriorityRange* range) {
  if (!std::isfinite(priority)) return;
  ++range->count;
  range->min = range->count == 1 ? priority : std::min(range->min, priority);
  range->max = range->count == 1 ? priority : std::max(range->max, priority);
  // Divides first: the difference of two priorities may overflow.
  const auto n = static_cast<double>(range->count);
  range->mean = std::clamp(range->mean + (priority / n - range->mean / n), range->min, range->max);
}

size_t Bucket(int32_t times_sampled) {
  return static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(times_sampled, 0))));
}

// --- Saved state ---
//   state := version:u8 inserted sampled deleted updated:count resets:varint insert update:range
//            bucket:varint[32]
//   count := items:varint bytes:varint
//   range := count:varint (mean min max:f64)?   numbers only if count > 0
constexpr uint8_t kVersion = 1;
// No count reaches this value, and larger ones could overflow.
constexpr uint64_t kMaxCount = uint64_t{1} << 62;

void Put(int64_t value, std::string* out) { PutVarint(out, static_cast<uint64_t>(value)); }
void Put(double value, std::string* out) { PutFixed64(out, std::bit_cast<uint64_t>(value)); }
void Put(const Count& count, std::string* out) {
  Put(count.items, out);
  Put(count.bytes, out);
}
void Put(const PriorityRange& range, std::string* out) {
  Put(range.count, out);
  if (range.count == 0) return;
  Put(range.mean, out);
  Put(range.min, out);
  Put(range.max, out);
}

bool Read(ByteReader* in, int64_t* value) {
  uint64_t wide = 0;
  if (!in->ReadVarint(&wide) || wide > kMaxCount) return false;
  *value = static_cast<int64_t>(wide);
  return true;
}
bool Read(ByteReader* in, double* value) {
  uint64_t bits = 0;
  if (!in->ReadFixed64(&bits)) return false;
  *value = std::bit_cast<double>(bits);
  return std::isfinite(*value);
}
bool Read(ByteReader* in, Count* count) { return Read(in, &count->items) && Read(in, &count->bytes); }
bool Read(ByteReader* in, PriorityRange* range) {
  if (!Read(in, &range->count)) return false;
  if (range->count == 0) return true;
  return Read(in, &range->mean) && Read(in, &range->min) && Read(in, &range->max) &&
         range->min <= range->mean && range->mean <= range->max;
}

std::string Encode(const StatisticsSnapshot& s) {
  std::string out;
  PutByte(&out, kVersion);
  for (const Count* count : {&s.inserted, &s.sampled, &s.deleted, &s.updated}) Put(*count, &out);
  Put(s.resets, &out);
  Put(s.insert_priority, &out);
  Put(s.update_priority, &out);
  for (const int64_t bucket : s.times_sampled_at_delete) Put(bucket, &out);
  return out;
}

bool Decode(ByteReader* in, StatisticsSnapshot* s) {
  for (Count* count : {&s->inserted, &s->sampled, &s->deleted, &s->updated}) {
    if (!Read(in, count)) return false;
  }
  if (!Read(in, &s->resets) || !Read(in, &s->insert_priority) || !Read(in, &s->update_priority)) return false;
  if (s->insert_priority.count > s->inserted.items || s->update_priority.count > s->updated.items)
    return false;
  int64_t remaining = s->deleted.items;
  for (int64_t& bucket : s->times_sampled_at_delete) {
    if (!Read(in, &bucket) || bucket > remaining) return false;
    remaining -= bucket;
  }
  return remaining == 0 && in->remaining() == 0;
}

class Statistics final : public StatisticsExtension {
 public:
  std::string name() const override { return "statistics"; }

  void OnInsert(const ItemView& item, Context&) override {
    MutexLock lock(&mu_);
    Add(item, &now_.inserted);
    Add(item.priority, &now_.insert_priority);
  }
  void OnDelete(const ItemView& item, Context&) override {
    MutexLock lock(&mu_);
    Add(item, &now_.deleted);
    ++now_.times_sampled_at_delete[Bucket(item.times_sampled)];
  }
  void OnUpdate(const ItemView& item, Context&) override {
    MutexLock lock(&mu_);
    Add(item, &now_.updated);
    Add(item.priority, &now_.update_priority);
  }
  void OnSample(const ItemView& item, Context&) override {
    MutexLock lock(&mu_);
    Add(item, &now_.sampled);
  }
  void OnReset() override {
    MutexLock lock(&mu_);
    ++now_.resets;
  }

  StatisticsSnapshot Get() const override {
    MutexLock lock(&mu_);
    return now_;
  }

  std::string SaveState() const override { return Encode(Get()); }

  Status LoadState(std::string_view state) override {
    StatisticsSnapshot loaded;
    if (!state.empty()) {  // else: saved by a table without this extension
      ByteReader in(state);
      uint8_t version = 0;
      (void)in.ReadByte(&version);
      if (version != kVersion) {
        return Status::DataLoss("extension \"statistics\": the saved state is of version " +
                                std::to_string(version) + ", this build reads version " +
                                std::to_string(kVersion))
            .WithDetail(Detail::kCorruptData);
      }
      if (!Decode(&in, &loaded)) {
        return Status::DataLoss("extension \"statistics\": the saved state of " +
                                std::to_string(state.size()) + " bytes is damaged")
            .WithDetail(Detail::kCorruptData);
      }
    }
    MutexLock lock(&mu_);
    now_ = loaded;
    return Status::Ok();
  }

 private:
  // Held for a few instructions, also by readers, since hooks run under the table's lock.
  mutable Mutex mu_;
  StatisticsSnapshot now_ GUARDED_BY(mu_);
};

}  // namespace
}  // namespace internal

std::shared_ptr<StatisticsExtension> MakeStatistics() { return std::make_shared<internal::Statistics>(); }

}  // namespace reverb
