#include "base/pooled_blocks.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/background.h"

namespace reverb::internal {
namespace {

constexpr size_t kStepsPerDoubling = 8;
constexpr size_t kLogSteps = 3;
constexpr size_t kLogSmallest = 13;  // log2 of the lower bound of the first eight classes
// Bounds how long a release step occupies the background thread.
constexpr size_t kReleaseStepBytes = size_t{64} << 20;

size_t RoundUpTo(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

PooledBlocks::PooledBlocks(Clock* clock, PageSource* pages, std::function<void()> before_release,
                           bool populates_ahead)
    : clock_(clock),
      pages_(pages),
      before_release_(std::move(before_release)),
      page_bytes_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
      populates_ahead_(populates_ahead) {}

PooledBlocks::~PooledBlocks() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < kNumClasses; ++i) {
    for (const auto& [base, slab] : classes_[i].slabs) pages_->Unmap(base, SlabBytes(i));
  }
}

// Returns the smallest class with blocks of at least `bytes`; kNumClasses or more if there is none.
size_t PooledBlocks::ClassIndex(size_t bytes) {
  const size_t last = bytes - 1;
  const auto log = static_cast<size_t>(std::bit_width(last)) - 1;
  const size_t step = (last >> (log - kLogSteps)) - kStepsPerDoubling;
  return (log - kLogSmallest) * kStepsPerDoubling + step;
}

size_t PooledBlocks::BlockBytes(size_t index) const {
  const size_t log = kLogSmallest + index / kStepsPerDoubling;
  const size_t step = kStepsPerDoubling + index % kStepsPerDoubling;
  return RoundUpTo((step + 1) << (log - kLogSteps), page_bytes_);
}

size_t PooledBlocks::SlabBytes(size_t index) const {
  const size_t block_bytes = BlockBytes(index);
  return std::max<size_t>(1, kSlabBytes / block_bytes) * block_bytes;
}

uint8_t* PooledBlocks::Allocate(size_t bytes, bool populates_ahead) {
  const size_t index = ClassIndex(bytes);
  if (index >= kNumClasses) return nullptr;
  uint8_t* block = nullptr;
  bool is_resident = false;
  bool populates = false;
  {
    MutexLock lock(&mu_);
    SizeClass& size_class = classes_[index];
    is_resident = !size_class.idle.empty();
    if (is_resident) {
      block = size_class.idle.back();
      size_class.idle.pop_back();
      size_class.least_idle = std::min(size_class.least_idle, size_class.idle.size());
      size_class.num_due = std::min(size_class.num_due, size_class.idle.size());
      stats_.idle_bytes -= BlockBytes(index);
    } else {
      block = TakeReleased(index);
      if (block == nullptr) return nullptr;
      ++size_class.growth;
    }
    stats_.allocated_bytes += BlockBytes(index);
    populates = populates_ahead && ShouldPopulate(index);
  }
  if (populates) RunInBackground([this, index] { PopulateAhead(index); });
  if (is_resident || pages_->Populate(block, BlockBytes(index))) return block;
  {
    MutexLock lock(&mu_);
    stats_.allocated_bytes -= BlockBytes(index);
  }
  ReleaseBlocks(index, {block});
  return nullptr;
}

bool PooledBlocks::ShouldPopulate(size_t index) {
  SizeClass& size_class = classes_[index];
  if (size_class.growth < kMinGrowth || size_class.is_populating) return false;
  // Not for each block, since waking the thread takes a while.
  size_class.is_populating = 2 * (size_class.idle.size() + 1) * BlockBytes(index) <= kAheadBytes;
  return size_class.is_populating;
}

void PooledBlocks::PopulateAhead(size_t index) {
  const size_t block_bytes = BlockBytes(index);
  uint8_t* block = nullptr;
  {
    MutexLock lock(&mu_);
    SizeClass& size_class = classes_[index];
    if ((size_class.idle.size() + 1) * block_bytes <= kAheadBytes) block = TakeReleased(index);
    size_class.is_populating = block != nullptr;
    if (block == nullptr) return;
  }
  const bool is_resident = pages_->Populate(block, block_bytes);
  if (!is_resident) ReleaseBlocks(index, {block});
  bool schedules = false;
  {
    MutexLock lock(&mu_);
    classes_[index].is_populating = is_resident;
    if (!is_resident) return;
    ++classes_[index].growth;
    schedules = AddIdle(index, block);
  }
  if (schedules) ScheduleRelease();
  // One block at a time: the thread has other work too.
  RunInBackground([this, index] { PopulateAhead(index); });
}

uint8_t* PooledBlocks::TakeReleased(size_t index) {
  SizeClass& size_class = classes_[index];
  if (size_class.slabs_with_released.empty() && !AddSlab(index)) return nullptr;
  // Uses the lowest slab, so that the others become empty.
  const auto lowest = size_class.slabs_with_released.begin();
  std::vector<uint8_t*>& released = size_class.slabs.at(*lowest).released;
  uint8_t* const block = released.back();
  released.pop_back();
  if (released.empty()) size_class.slabs_with_released.erase(lowest);
  return block;
}

bool PooledBlocks::AddSlab(size_t index) {
  const size_t block_bytes = BlockBytes(index);
  const size_t num_blocks = SlabBytes(index) / block_bytes;
  uint8_t* const base = pages_->Map(num_blocks * block_bytes);
  if (base == nullptr) return false;
  Slab slab{.num_blocks = num_blocks, .released = {}};
  slab.released.reserve(num_blocks);
  // Blocks are allocated from the lowest address on: base/huge_pages.h relies on ascending addresses.
  for (size_t i = num_blocks; i-- > 0;) slab.released.push_back(base + i * block_bytes);
  classes_[index].slabs.emplace(base, std::move(slab));
  classes_[index].slabs_with_released.insert(base);
  stats_.mapped_bytes += num_blocks * block_bytes;
  return true;
}

bool PooledBlocks::AddIdle(size_t index, uint8_t* block) {
  classes_[index].idle.push_back(block);
  stats_.idle_bytes += BlockBytes(index);
  return !std::exchange(is_release_scheduled_, true);
}

void PooledBlocks::Free(uint8_t* block, size_t bytes) {
  const size_t index = ClassIndex(bytes);
  {
    MutexLock lock(&mu_);
    stats_.allocated_bytes -= BlockBytes(index);
    if (!AddIdle(index, block)) return;
  }
  ScheduleRelease();
}

void PooledBlocks::ReleaseIdle() {
  BeginRelease();
  while (ReleaseSome()) {
  }
}

void PooledBlocks::BeginRelease() {
  if (before_release_) before_release_();
  MutexLock lock(&mu_);
  for (SizeClass& size_class : classes_) {
    size_class.num_due = size_class.least_idle;
    size_class.least_idle = size_class.idle.size();
    size_class.growth = 0;
  }
}

bool PooledBlocks::ReleaseSome() {
  size_t index = 0;
  std::vector<uint8_t*> blocks;
  {
    MutexLock lock(&mu_);
    const auto found = std::ranges::find_if(classes_, [](const SizeClass& each) { return each.num_due > 0; });
    if (found == classes_.end()) return false;
    index = static_cast<size_t>(found - classes_.begin());
    const size_t most = std::max<size_t>(1, kReleaseStepBytes / BlockBytes(index));
    const size_t count = std::min(found->num_due, most);
    const auto end = found->idle.begin() + static_cast<ptrdiff_t>(count);
    blocks.assign(found->idle.begin(), end);
    found->idle.erase(found->idle.begin(), end);
    found->least_idle = std::min(found->least_idle, found->idle.size());
    found->num_due -= count;
    stats_.idle_bytes -= count * BlockBytes(index);
  }
  ReleaseBlocks(index, std::move(blocks));
  return true;
}

void PooledBlocks::ReleaseBlocks(size_t index, std::vector<uint8_t*> blocks) {
  const size_t block_bytes = BlockBytes(index);
  std::ranges::sort(blocks);
  // Runs without the lock, since these blocks are in no list. Makes one call for each run of adjacent blocks.
  for (size_t begin = 0; begin < blocks.size();) {
    size_t end = begin + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + block_bytes) ++end;
    pages_->Discard(blocks[begin], (end - begin) * block_bytes);
    begin = end;
  }
  std::vector<uint8_t*> empty_slabs;
  {
    MutexLock lock(&mu_);
    for (uint8_t* const block : blocks) {
      if (uint8_t* const slab = AddReleased(index, block); slab != nullptr) empty_slabs.push_back(slab);
    }
  }
  for (uint8_t* const slab : empty_slabs) pages_->Unmap(slab, SlabBytes(index));
}

uint8_t* PooledBlocks::AddReleased(size_t index, uint8_t* block) {
  SizeClass& size_class = classes_[index];
  const auto slab = std::prev(size_class.slabs.upper_bound(block));
  uint8_t* const base = slab->first;
  slab->second.released.push_back(block);
  if (slab->second.released.size() < slab->second.num_blocks) {
    size_class.slabs_with_released.insert(base);
    return nullptr;
  }
  stats_.mapped_bytes -= SlabBytes(index);
  size_class.slabs_with_released.erase(base);
  size_class.slabs.erase(slab);
  return base;
}

void PooledBlocks::ScheduleRelease() {
  clock_->CallAt(clock_->Now() + kReleaseInterval, [this] {
    RunInBackground([this] {
      BeginRelease();
      ContinueScheduledRelease();
    });
  });
}

void PooledBlocks::ContinueScheduledRelease() {
  if (ReleaseSome()) return RunInBackground([this] { ContinueScheduledRelease(); });
  {
    MutexLock lock(&mu_);
    is_release_scheduled_ = stats_.idle_bytes > 0;
    if (!is_release_scheduled_) return;
  }
  ScheduleRelease();
}

PooledBlocks::Stats PooledBlocks::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

void PooledBlocks::UnlockInChild(bool forget_blocks) {
  is_release_scheduled_ = false;
  if (forget_blocks) {
    for (SizeClass& size_class : classes_) size_class = {};
    stats_ = {};
  }
  mu_.Unlock();
}

}  // namespace reverb::internal
