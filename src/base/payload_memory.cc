#include "base/payload_memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/background.h"

// AddressSanitizer detects leaks, overruns and use after free only in heap memory.
#if defined(__SANITIZE_ADDRESS__)
#define REVERB_HEAP_ONLY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REVERB_HEAP_ONLY 1
#endif
#endif

namespace reverb::internal {
namespace {

#ifdef REVERB_HEAP_ONLY
constexpr size_t kMinPooledBytesOfProcess = SIZE_MAX;
#else
constexpr size_t kMinPooledBytesOfProcess = PayloadMemory::kMinPooledBytes;
#endif

constexpr size_t kStepsPerDoubling = 8;
constexpr size_t kLogSteps = 3;
constexpr size_t kLogSmallest = 13;  // log2 of the lower bound of the first eight classes
// Bounds how long a release step occupies the background thread.
constexpr size_t kReleaseStepBytes = size_t{64} << 20;

size_t RoundUp(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// The aligned operators cost more, even for the default alignment.
void* AllocateFromHeap(size_t bytes, std::align_val_t alignment) {
  if (alignment <= PayloadMemory::kAlignment) return ::operator new(bytes, std::nothrow);
  return ::operator new(bytes, alignment, std::nothrow);
}
void FreeToHeap(void* block, std::align_val_t alignment) {
  if (alignment <= PayloadMemory::kAlignment) return ::operator delete(block);
  ::operator delete(block, alignment);
}

void Unmap(uint8_t* memory, size_t bytes) { (void)::munmap(memory, bytes); }

}  // namespace

PayloadMemory::PayloadMemory(Clock* clock, size_t min_pooled_bytes)
    : clock_(clock),
      page_bytes_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
      min_pooled_bytes_(std::max(min_pooled_bytes, 4 * page_bytes_)) {}

PayloadMemory::~PayloadMemory() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < kNumClasses; ++i) {
    for (const auto& [base, slab] : classes_[i].slabs) Unmap(base, slab.num_blocks * BlockBytes(i));
  }
}

// Returns the smallest class with blocks of at least `bytes`; kNumClasses or more if there is none.
size_t PayloadMemory::ClassIndex(size_t bytes) {
  const size_t last = bytes - 1;
  const auto log = static_cast<size_t>(std::bit_width(last)) - 1;
  const size_t step = (last >> (log - kLogSteps)) - kStepsPerDoubling;
  return (log - kLogSmallest) * kStepsPerDoubling + step;
}

size_t PayloadMemory::BlockBytes(size_t index) const {
  const size_t log = kLogSmallest + index / kStepsPerDoubling;
  const size_t step = kStepsPerDoubling + index % kStepsPerDoubling;
  return RoundUp((step + 1) << (log - kLogSteps), page_bytes_);
}

void* PayloadMemory::Allocate(size_t bytes, std::align_val_t alignment) {
  if (!IsPooled(bytes)) return AllocateFromHeap(bytes, alignment);
  const size_t index = ClassIndex(bytes);
  if (index >= kNumClasses) return nullptr;
  MutexLock lock(&mu_);
  SizeClass& size_class = classes_[index];
  void* block = size_class.newest;
  if (block != nullptr) {
    size_class.newest = size_class.newest->older;
    (size_class.newest != nullptr ? size_class.newest->newer : size_class.oldest) = nullptr;
    size_class.least_idle = std::min(size_class.least_idle, --size_class.num_idle);
    size_class.num_due = std::min(size_class.num_due, size_class.num_idle);
    stats_.idle_bytes -= BlockBytes(index);
  } else {
    block = AllocateReleased(index);
  }
  if (block != nullptr) stats_.allocated_bytes += BlockBytes(index);
  return block;
}

void* PayloadMemory::AllocateReleased(size_t index) {
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

bool PayloadMemory::AddSlab(size_t index) {
  const size_t block_bytes = BlockBytes(index);
  const size_t num_blocks = std::max<size_t>(1, kSlabBytes / block_bytes);
  void* const memory =
      ::mmap(nullptr, num_blocks * block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* const base = static_cast<uint8_t*>(memory);
  Slab slab{.num_blocks = num_blocks, .released = {}};
  slab.released.reserve(num_blocks);
  // Blocks are allocated from the lowest address on: base/huge_pages.h relies on ascending addresses.
  for (size_t i = num_blocks; i-- > 0;) slab.released.push_back(base + i * block_bytes);
  classes_[index].slabs.emplace(base, std::move(slab));
  classes_[index].slabs_with_released.insert(base);
  stats_.mapped_bytes += num_blocks * block_bytes;
  return true;
}

void PayloadMemory::Free(void* block, size_t bytes, std::align_val_t alignment) {
  if (!IsPooled(bytes)) return FreeToHeap(block, alignment);
  const size_t index = ClassIndex(bytes);
  {
    MutexLock lock(&mu_);
    SizeClass& size_class = classes_[index];
    auto* const idle = new (block) IdleBlock{.older = size_class.newest, .newer = nullptr};
    (size_class.newest != nullptr ? size_class.newest->newer : size_class.oldest) = idle;
    size_class.newest = idle;
    ++size_class.num_idle;
    stats_.allocated_bytes -= BlockBytes(index);
    stats_.idle_bytes += BlockBytes(index);
    if (std::exchange(is_release_scheduled_, true)) return;
  }
  ScheduleRelease();
}

PayloadMemory::IdleBlock* PayloadMemory::RemoveOldest(SizeClass* size_class) {
  IdleBlock* const block = size_class->oldest;
  size_class->oldest = block->newer;
  (size_class->oldest != nullptr ? size_class->oldest->older : size_class->newest) = nullptr;
  size_class->least_idle = std::min(size_class->least_idle, --size_class->num_idle);
  return block;
}

void PayloadMemory::ReleaseIdle() {
  BeginRelease();
  while (ReleaseSome()) {
  }
}

void PayloadMemory::BeginRelease() {
  MutexLock lock(&mu_);
  for (SizeClass& size_class : classes_) {
    size_class.num_due = size_class.least_idle;
    size_class.least_idle = size_class.num_idle;
  }
}

bool PayloadMemory::ReleaseSome() {
  size_t index = 0;
  std::vector<uint8_t*> blocks;
  {
    MutexLock lock(&mu_);
    const auto found = std::ranges::find_if(classes_, [](const SizeClass& each) { return each.num_due > 0; });
    if (found == classes_.end()) return false;
    index = static_cast<size_t>(found - classes_.begin());
    const size_t most = std::max<size_t>(1, kReleaseStepBytes / BlockBytes(index));
    const size_t count = std::min(found->num_due, most);
    blocks.reserve(count);
    for (size_t i = 0; i < count; ++i) blocks.push_back(reinterpret_cast<uint8_t*>(RemoveOldest(&*found)));
    found->num_due -= count;
    stats_.idle_bytes -= count * BlockBytes(index);
  }
  ReleaseBlocks(index, std::move(blocks));
  return true;
}

void PayloadMemory::ReleaseBlocks(size_t index, std::vector<uint8_t*> blocks) {
  const size_t block_bytes = BlockBytes(index);
  std::ranges::sort(blocks);
  // Runs without the lock, since these blocks are in no list. Makes one call for each run of adjacent blocks.
  for (size_t begin = 0; begin < blocks.size();) {
    size_t end = begin + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + block_bytes) ++end;
    (void)::madvise(blocks[begin], (end - begin) * block_bytes, MADV_DONTNEED);
    begin = end;
  }
  std::vector<uint8_t*> empty_slabs;
  size_t slab_bytes = 0;
  {
    MutexLock lock(&mu_);
    SizeClass& size_class = classes_[index];
    for (uint8_t* const block : blocks) {
      const auto slab = std::prev(size_class.slabs.upper_bound(block));
      slab->second.released.push_back(block);
      if (slab->second.released.size() < slab->second.num_blocks) {
        size_class.slabs_with_released.insert(slab->first);
        continue;
      }
      slab_bytes = slab->second.num_blocks * block_bytes;
      stats_.mapped_bytes -= slab_bytes;
      empty_slabs.push_back(slab->first);
      size_class.slabs_with_released.erase(slab->first);
      size_class.slabs.erase(slab);
    }
  }
  for (uint8_t* const slab : empty_slabs) Unmap(slab, slab_bytes);
}

void PayloadMemory::ScheduleRelease() {
  clock_->CallAt(clock_->Now() + kReleaseInterval, [this] {
    RunInBackground([this] {
      BeginRelease();
      ContinueScheduledRelease();
    });
  });
}

void PayloadMemory::ContinueScheduledRelease() {
  if (ReleaseSome()) return RunInBackground([this] { ContinueScheduledRelease(); });
  {
    MutexLock lock(&mu_);
    is_release_scheduled_ = stats_.idle_bytes > 0;
    if (!is_release_scheduled_) return;
  }
  ScheduleRelease();
}

PayloadMemory::Stats PayloadMemory::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

void PayloadMemory::LockForFork() NO_THREAD_SAFETY_ANALYSIS { ProcessPayloadMemory()->mu_.Lock(); }
void PayloadMemory::UnlockInParent() NO_THREAD_SAFETY_ANALYSIS { ProcessPayloadMemory()->mu_.Unlock(); }
void PayloadMemory::UnlockInChild() NO_THREAD_SAFETY_ANALYSIS {
  ProcessPayloadMemory()->is_release_scheduled_ = false;  // the parent's timers do not run in the child
  ProcessPayloadMemory()->mu_.Unlock();
}

PayloadMemory* ProcessPayloadMemory() {
  static PayloadMemory* const memory = [] {
    // Registration fails only if no memory is left.
    (void)pthread_atfork(PayloadMemory::LockForFork, PayloadMemory::UnlockInParent,
                         PayloadMemory::UnlockInChild);
    return new PayloadMemory(RealClock(), kMinPooledBytesOfProcess);
  }();
  return memory;
}

}  // namespace reverb::internal
