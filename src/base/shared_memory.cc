#include "base/shared_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

// Newer than the distribution's headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace reverb::internal {
namespace {

constexpr size_t kRegionBytes = PooledBlocks::kSlabBytes;
constexpr size_t kSlabUnit = size_t{64} << 10;
constexpr size_t kLargeSlabBytes = 4 * kSlabUnit;
// Blocks above this size are parts of large slabs, of which they waste less.
constexpr size_t kMaxBlockOfSmallSlab = 2048;

constexpr size_t kSmallestBlock = 128;
constexpr size_t kLogSmallestBlock = 7;
constexpr size_t kLogStepsPerDoubling = 3;
constexpr size_t kMaxBlocksPerSlab = kSlabUnit / kSmallestBlock;

// Bounds the free blocks of one size that a shard caches.
constexpr size_t kMagazineBytes = size_t{16} << 10;
constexpr size_t kMaxMagazineBlocks = 32;
constexpr size_t kMinMagazineBlocks = 2;

Status SystemError(const std::string& what) {
  return Status::Unavailable("shared memory: " + what + ": " + std::strerror(errno));
}

// Closes the descriptor at the end of a scope.
class ScopedDescriptor {
 public:
  explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
  ScopedDescriptor(const ScopedDescriptor&) = delete;
  ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;
  ~ScopedDescriptor() {
    if (descriptor_ >= 0) (void)::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

int CreateMemfd() {
  // Systems may require MFD_NOEXEC_SEAL (vm.memfd_noexec), and old ones do not know it.
  const int descriptor = ::memfd_create("reverb", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return ::memfd_create("reverb", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

}  // namespace

struct SharedMemory::SmallSlab {
  uint8_t* base;
  size_t block_bytes;
  size_t num_blocks;
  size_t num_free;
  std::array<uint64_t, kMaxBlocksPerSlab / 64> free_blocks = {};  // a bit for each block
};

SharedMemory::SharedMemory(Clock* clock, const Options& options)
    : options_(options),
      log_segment_bytes_(std::countr_zero(options.segment_bytes)),
      pool_(
          clock, this, [this] { FlushUnusedMagazines(); }, options.populates_ahead) {}

SharedMemory::~SharedMemory() {
  for (Segment& segment : segments_) {
    if (segment.descriptor >= 0) (void)::close(segment.descriptor);
    const size_t units = segment.slabs == nullptr ? 0 : options_.segment_bytes / kSlabUnit;
    for (size_t i = 0; i < units; ++i) {
      SmallSlab* const slab = segment.slabs[i];
      // A large slab has several entries.
      if (slab != nullptr && (i == 0 || segment.slabs[i - 1] != slab)) delete slab;
    }
  }
  MutexLock lock(&mu_);
  if (reserved_ != nullptr) (void)::munmap(reserved_, reserved_bytes_);
}

// --- Small blocks ---

// Returns the smallest class with blocks of at least `bytes`: eight per doubling from kSmallestBlock on.
size_t SharedMemory::SmallClassIndex(size_t bytes) {
  if (bytes <= kSmallestBlock) return 0;
  const size_t last = bytes - 1;
  const auto log = static_cast<size_t>(std::bit_width(last)) - 1;
  const size_t step = (last >> (log - kLogStepsPerDoubling)) - (size_t{1} << kLogStepsPerDoubling);
  return 1 + ((log - kLogSmallestBlock) << kLogStepsPerDoubling) + step;
}

size_t SharedMemory::SmallBlockBytes(size_t index) {
  if (index == 0) return kSmallestBlock;
  const size_t log = kLogSmallestBlock + ((index - 1) >> kLogStepsPerDoubling);
  const size_t step = (index - 1) & ((size_t{1} << kLogStepsPerDoubling) - 1);
  return ((size_t{1} << kLogStepsPerDoubling) + step + 1) << (log - kLogStepsPerDoubling);
}

size_t SharedMemory::SmallSlabBytes(size_t index) {
  return SmallBlockBytes(index) <= kMaxBlockOfSmallSlab ? kSlabUnit : kLargeSlabBytes;
}

size_t SharedMemory::MagazineBlocks(size_t index) {
  return std::clamp(kMagazineBytes / SmallBlockBytes(index), kMinMagazineBlocks, kMaxMagazineBlocks);
}

SharedMemory::Shard& SharedMemory::ThisThreadsShard() {
  static std::atomic<size_t> next{0};
  static thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kNumShards;
  return shards_[mine];
}

SharedMemory::SmallSlab** SharedMemory::SlabEntry(const uint8_t* address) {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - range_.load(std::memory_order_relaxed);
  return &segments_[offset >> log_segment_bytes_].slabs[(offset & (segment_bytes() - 1)) / kSlabUnit];
}

uint8_t* SharedMemory::Allocate(size_t bytes) {
  if (bytes >= kMinPooledBytes) return bytes > options_.segment_bytes ? nullptr : pool_.Allocate(bytes);
  const size_t index = SmallClassIndex(bytes);
  Shard& shard = ThisThreadsShard();
  MutexLock lock(&shard.mu);
  Magazine& magazine = shard.magazines[index];
  magazine.was_used = true;
  if (magazine.blocks.empty()) {
    magazine.blocks.reserve(MagazineBlocks(index));
    TakeBlocks(index, MagazineBlocks(index) / 2, &magazine.blocks);
    if (magazine.blocks.empty()) return nullptr;
  }
  uint8_t* const block = magazine.blocks.back();
  magazine.blocks.pop_back();
  return block;
}

void SharedMemory::Free(uint8_t* block, size_t bytes) {
  if (IsInherited(block)) return;
  if (bytes >= kMinPooledBytes) return pool_.Free(block, bytes);
  const size_t index = SmallClassIndex(bytes);
  Shard& shard = ThisThreadsShard();
  MutexLock lock(&shard.mu);
  Magazine& magazine = shard.magazines[index];
  magazine.was_used = true;
  magazine.blocks.push_back(block);
  if (magazine.blocks.size() < MagazineBlocks(index)) return;
  // Returns the older half: the newer blocks are in the caches.
  const size_t count = magazine.blocks.size() / 2;
  ReturnBlocks(index, std::span(magazine.blocks).first(count));
  magazine.blocks.erase(magazine.blocks.begin(), magazine.blocks.begin() + static_cast<ptrdiff_t>(count));
}

void SharedMemory::TakeBlocks(size_t index, size_t count, std::vector<uint8_t*>* blocks) {
  ClassGroup& group = class_groups_[index % kNumClassGroups];
  MutexLock lock(&group.mu);
  SlabsByAddress& with_free_blocks = group.with_free_blocks[index / kNumClassGroups];
  while (count > 0) {
    // Uses the lowest slab, so that the others become empty.
    const auto lowest = with_free_blocks.begin();
    SmallSlab* slab = lowest == with_free_blocks.end() ? nullptr : lowest->second;
    if (slab == nullptr) {
      slab = AddSmallSlab(index);
      if (slab == nullptr) return;
      with_free_blocks.emplace(slab->base, slab);
    }
    for (size_t word = 0; word < slab->free_blocks.size() && count > 0; ++word) {
      uint64_t& bits = slab->free_blocks[word];
      while (bits != 0 && count > 0) {
        const auto bit = static_cast<size_t>(std::countr_zero(bits));
        bits &= bits - 1;
        blocks->push_back(slab->base + (word * 64 + bit) * slab->block_bytes);
        --slab->num_free;
        --count;
      }
    }
    if (slab->num_free == 0) with_free_blocks.erase(slab->base);
  }
}

SharedMemory::SmallSlab* SharedMemory::AddSmallSlab(size_t index) {
  const size_t slab_bytes = SmallSlabBytes(index);
  uint8_t* const base = pool_.AllocateRare(slab_bytes);
  if (base == nullptr) return nullptr;
  const size_t block_bytes = SmallBlockBytes(index);
  const size_t num_blocks = slab_bytes / block_bytes;
  auto* const slab = new SmallSlab{
      .base = base, .block_bytes = block_bytes, .num_blocks = num_blocks, .num_free = num_blocks};
  for (size_t i = 0; i < num_blocks; ++i) slab->free_blocks[i / 64] |= uint64_t{1} << i % 64;
  for (size_t unit = 0; unit < slab_bytes; unit += kSlabUnit) *SlabEntry(base + unit) = slab;
  return slab;
}

void SharedMemory::ReturnBlocks(size_t index, std::span<uint8_t* const> blocks) {
  std::vector<SmallSlab*> empty;
  {
    ClassGroup& group = class_groups_[index % kNumClassGroups];
    MutexLock lock(&group.mu);
    SlabsByAddress& with_free_blocks = group.with_free_blocks[index / kNumClassGroups];
    for (uint8_t* const block : blocks) {
      SmallSlab* const slab = *SlabEntry(block);
      const auto number = static_cast<size_t>(block - slab->base) / slab->block_bytes;
      slab->free_blocks[number / 64] |= uint64_t{1} << number % 64;
      if (slab->num_free++ == 0) with_free_blocks.emplace(slab->base, slab);
      if (slab->num_free < slab->num_blocks) continue;
      with_free_blocks.erase(slab->base);
      for (size_t unit = 0; unit < SmallSlabBytes(index); unit += kSlabUnit) {
        *SlabEntry(slab->base + unit) = nullptr;
      }
      empty.push_back(slab);
    }
  }
  for (SmallSlab* const slab : empty) {
    pool_.Free(slab->base, SmallSlabBytes(index));
    delete slab;
  }
}

void SharedMemory::FlushUnusedMagazines() {
  for (Shard& shard : shards_) {
    MutexLock lock(&shard.mu);
    for (size_t i = 0; i < kNumSmallClasses; ++i) {
      Magazine& magazine = shard.magazines[i];
      if (std::exchange(magazine.was_used, false) || magazine.blocks.empty()) continue;
      ReturnBlocks(i, magazine.blocks);
      magazine.blocks.clear();
    }
  }
}

// --- Pages ---

uint8_t* SharedMemory::AddressOf(uint32_t region) const {
  return reinterpret_cast<uint8_t*>(range_.load(std::memory_order_relaxed) + region * kRegionBytes);
}

uint8_t* SharedMemory::Map(size_t bytes) {
  const size_t needed = (bytes + kRegionBytes - 1) / kRegionBytes;
  if (needed > options_.segment_bytes / kRegionBytes) return nullptr;
  MutexLock lock(&mu_);
  const auto find = [&]() REQUIRES(mu_) {
    return std::ranges::find_if(free_regions_, [&](const auto& run) { return run.second >= needed; });
  };
  auto run = find();
  if (run == free_regions_.end()) {
    if (!AddSegment().ok()) return nullptr;
    run = find();
  }
  const auto [first, count] = *run;
  free_regions_.erase(run);
  const auto taken = static_cast<uint32_t>(needed);
  if (count > taken) free_regions_.emplace(first + taken, count - taken);
  return AddressOf(first);
}

void SharedMemory::Unmap(uint8_t* memory, size_t bytes) {
  MutexLock lock(&mu_);
  const auto regions_per_segment = static_cast<uint32_t>(options_.segment_bytes / kRegionBytes);
  auto first = static_cast<uint32_t>(
      (reinterpret_cast<uintptr_t>(memory) - range_.load(std::memory_order_relaxed)) / kRegionBytes);
  auto count = static_cast<uint32_t>((bytes + kRegionBytes - 1) / kRegionBytes);
  const auto next = free_regions_.find(first + count);
  if (next != free_regions_.end() && next->first % regions_per_segment != 0) {
    count += next->second;
    free_regions_.erase(next);
  }
  const auto after = free_regions_.lower_bound(first);
  if (after != free_regions_.begin() && first % regions_per_segment != 0) {
    const auto before = std::prev(after);
    if (before->first + before->second == first) {
      first = before->first;
      count += before->second;
      free_regions_.erase(before);
    }
  }
  free_regions_.emplace(first, count);
}

bool SharedMemory::Populate(uint8_t* memory, size_t bytes) {
  // Cheaper than a fault for each page. If the kernel does not support it, pages become resident when they
  // are written. If it has no memory left, that write would raise SIGBUS.
  return ::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 || (errno != ENOMEM && errno != EFAULT);
}

void SharedMemory::Discard(uint8_t* memory, size_t bytes) { (void)::madvise(memory, bytes, MADV_REMOVE); }

// --- Segments ---

Status SharedMemory::ReserveRange() {
  rlimit limit{};
  // ftruncate() to more would raise SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < options_.segment_bytes) {
    return Status::Unavailable("shared memory: the limit of file sizes (RLIMIT_FSIZE) is " +
                               std::to_string(limit.rlim_cur) + " bytes, but a segment has " +
                               std::to_string(options_.segment_bytes) + "; raise it with ulimit -f");
  }
  for (uint32_t segments = options_.max_segments; segments > 0; segments /= 2) {
    // One more, so that the first segment can start on a boundary, which huge pages need.
    const size_t bytes = (size_t{segments} + 1) * options_.segment_bytes;
    void* const reserved =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) continue;
    reserved_ = reserved;
    reserved_bytes_ = bytes;
    max_segments_ = segments;
    segments_.resize(segments);
    const auto begin = reinterpret_cast<uintptr_t>(reserved);
    range_.store((begin + options_.segment_bytes - 1) / options_.segment_bytes * options_.segment_bytes,
                 std::memory_order_relaxed);
    return Status::Ok();
  }
  return Status::Unavailable("shared memory: no " + std::to_string(2 * options_.segment_bytes) +
                             " bytes of address space (RLIMIT_AS); raise it with ulimit -v");
}

Status SharedMemory::AddSegment() {
  REVERB_RETURN_IF_ERROR(unavailable_);
  if (reserved_ == nullptr) {
    unavailable_ = ReserveRange();
    REVERB_RETURN_IF_ERROR(unavailable_);
  }
  const uint32_t number = num_segments_.load(std::memory_order_relaxed);
  if (number == max_segments_) {
    return Status::ResourceExhausted("shared memory: all " + std::to_string(number) + " segments of " +
                                     std::to_string(options_.segment_bytes) + " bytes are in use");
  }
  const ScopedDescriptor memfd(CreateMemfd());
  if (memfd.get() < 0) return SystemError("memfd_create");
  if (::fchmod(memfd.get(), 0600) != 0) return SystemError("fchmod of a memfd");
  if (::ftruncate(memfd.get(), static_cast<off_t>(options_.segment_bytes)) != 0) {
    return SystemError("ftruncate of a memfd");
  }
  if (::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("F_ADD_SEALS of a memfd");
  }
  // Other processes receive this descriptor, which cannot be used for writing.
  const std::string path = "/proc/self/fd/" + std::to_string(memfd.get());
  const int readable = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (readable < 0) return SystemError("opening " + path);
  const auto regions = static_cast<uint32_t>(options_.segment_bytes / kRegionBytes);
  uint8_t* const address = AddressOf(number * regions);
  if (::mmap(address, options_.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             memfd.get(), 0) == MAP_FAILED) {
    const Status status = SystemError("mapping a segment");
    (void)::close(readable);
    return status;
  }
#if defined(MADV_HUGEPAGE)
  // Has an effect where the administrator permits huge pages of shared memory.
  (void)::madvise(address, options_.segment_bytes, MADV_HUGEPAGE);
#endif
  segments_[number].descriptor = readable;
  segments_[number].slabs = std::make_unique<SmallSlab*[]>(options_.segment_bytes / kSlabUnit);
  free_regions_.emplace(number * regions, regions);
  num_segments_.store(number + 1, std::memory_order_release);
  return Status::Ok();
}

Status SharedMemory::CheckAvailable() {
  MutexLock lock(&mu_);
  return num_segments() > first_own_segment() ? Status::Ok() : AddSegment();
}

// --- fork ---

// In the order in which calls acquire them.
void SharedMemory::LockForFork() NO_THREAD_SAFETY_ANALYSIS {
  SharedMemory& memory = *ProcessSharedMemory();
  for (Shard& shard : memory.shards_) shard.mu.Lock();
  for (ClassGroup& group : memory.class_groups_) group.mu.Lock();
  memory.pool_.LockForFork();
  memory.mu_.Lock();
}

// All but the pool.
void SharedMemory::UnlockAll() NO_THREAD_SAFETY_ANALYSIS {
  mu_.Unlock();
  for (ClassGroup& group : class_groups_) group.mu.Unlock();
  for (Shard& shard : shards_) shard.mu.Unlock();
}

void SharedMemory::UnlockInParent() NO_THREAD_SAFETY_ANALYSIS {
  SharedMemory& memory = *ProcessSharedMemory();
  memory.pool_.UnlockInParent();
  memory.UnlockAll();
}

void SharedMemory::UnlockInChild() NO_THREAD_SAFETY_ANALYSIS {
  SharedMemory& memory = *ProcessSharedMemory();
  for (Shard& shard : memory.shards_) {
    for (Magazine& magazine : shard.magazines) magazine.blocks.clear();
  }
  for (ClassGroup& group : memory.class_groups_) group.with_free_blocks = {};
  memory.free_regions_.clear();
  const uint32_t inherited = memory.num_segments_.load(std::memory_order_relaxed);
  memory.first_own_segment_.store(inherited, std::memory_order_relaxed);
  if (inherited > 0) {
    (void)::mprotect(memory.AddressOf(0), inherited * memory.options_.segment_bytes, PROT_READ);
  }
  memory.pool_.UnlockInChild(/*forget_blocks=*/true);
  memory.UnlockAll();
}

SharedMemory* ProcessSharedMemory() {
  static SharedMemory* const memory = [] {
    // Registration fails only if no memory is left.
    (void)pthread_atfork(SharedMemory::LockForFork, SharedMemory::UnlockInParent,
                         SharedMemory::UnlockInChild);
    return new SharedMemory(RealClock(), {.populates_ahead = true});
  }();
  return memory;
}

}  // namespace reverb::internal
