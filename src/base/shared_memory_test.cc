#include "base/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/mapped_segment.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/thread_sanitizer.h"

namespace reverb::internal {
namespace {

constexpr size_t kSmallSegment = 2 * PooledBlocks::kSlabBytes;
constexpr uint32_t kMaxSegments = 32;

class SharedMemoryTest : public testing::Test {
 protected:
  uint8_t* Allocate(size_t bytes, uint8_t fill = 0xAB) {
    uint8_t* const block = memory_.Allocate(bytes);
    EXPECT_NE(block, nullptr) << bytes;
    if (block != nullptr) std::memset(block, fill, bytes);
    return block;
  }
  std::vector<uint8_t*> AllocateMany(int count, size_t bytes) {
    std::vector<uint8_t*> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(Allocate(bytes));
    return blocks;
  }
  void FreeAll(const std::vector<uint8_t*>& blocks, size_t bytes) {
    for (uint8_t* const block : blocks) memory_.Free(block, bytes);
  }
  // Returns the memory of all segments.
  int64_t ResidentBytes() const {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < memory_.num_segments(); ++i) {
      struct stat info {};
      EXPECT_EQ(::fstat(memory_.descriptor(i), &info), 0);
      bytes += info.st_blocks * 512;
    }
    return bytes;
  }

  ManualClock clock_;
  SharedMemory memory_{&clock_, {.segment_bytes = kSmallSegment, .max_segments = kMaxSegments}};
};

TEST_F(SharedMemoryTest, AnotherProcessSeesTheBytesThroughTheDescriptor) {
  for (const size_t bytes : {size_t{1}, size_t{200}, size_t{4000}, size_t{16383}, size_t{70'000}}) {
    uint8_t* const block = Allocate(bytes, static_cast<uint8_t>(bytes));
    const auto place = memory_.Find(block);
    ASSERT_TRUE(place.has_value());
    const auto mapped = MappedSegment::Map(memory_.descriptor(place->segment), memory_.segment_bytes());
    ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
    const auto range = (*mapped)->Range(place->offset, bytes);
    ASSERT_TRUE(range.ok());
    EXPECT_NE(range->data(), block);
    EXPECT_TRUE(std::equal(range->begin(), range->end(), block));
    block[bytes - 1] ^= 1;
    EXPECT_EQ(range->back(), block[bytes - 1]);
    memory_.Free(block, bytes);
  }
}

TEST_F(SharedMemoryTest, TheDescriptorOfASegmentIsReadOnlyAndSealed) {
  memory_.Free(Allocate(100), 100);
  const int descriptor = memory_.descriptor(0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(descriptor, "x", 1, 0), -1);
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat info {};
  ASSERT_EQ(::fstat(descriptor, &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), memory_.segment_bytes());
  EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(SharedMemoryTest, AddressesOfOtherMemoryAreNotFound) {
  int local = 0;
  EXPECT_FALSE(memory_.Contains(&local)) << "before the first segment";
  uint8_t* const block = Allocate(1000);
  const auto heap = std::make_unique<int>();
  EXPECT_FALSE(memory_.Contains(&local));
  EXPECT_FALSE(memory_.Contains(heap.get()));
  EXPECT_FALSE(memory_.Contains(nullptr));
  const auto place = memory_.Find(block);
  ASSERT_TRUE(place.has_value());
  const uint8_t* const segment = block - place->offset;
  EXPECT_TRUE(memory_.Contains(segment));
  EXPECT_FALSE(memory_.Contains(segment - 1));
  EXPECT_FALSE(memory_.Contains(segment + memory_.segment_bytes())) << "the next segment does not exist yet";
  memory_.Free(block, 1000);
}

TEST_F(SharedMemoryTest, BlocksOfEverySizeAreAlignedAndApart) {
  std::vector<std::pair<uint8_t*, size_t>> blocks;
  for (size_t bytes = 0; bytes < 40'000; bytes += 1 + bytes / 50) {
    for (int i = 0; i < 3; ++i) blocks.emplace_back(Allocate(bytes), bytes);
  }
  std::ranges::sort(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u) << bytes;
    const uint8_t* const previous_end = i == 0 ? block : blocks[i - 1].first + blocks[i - 1].second;
    EXPECT_LE(previous_end, block);
    EXPECT_EQ(memory_.Find(block)->segment, memory_.Find(block + bytes)->segment);
  }
  for (const auto& [block, bytes] : blocks) memory_.Free(block, bytes);
}

TEST_F(SharedMemoryTest, SmallBlocksWasteLittle) {
  for (const size_t bytes : {size_t{130}, size_t{400}, size_t{832}, size_t{2100}, size_t{9000}}) {
    constexpr int kCount = 3000;
    const std::vector<uint8_t*> blocks = AllocateMany(kCount, bytes);
    EXPECT_LT(static_cast<double>(memory_.stats().allocated_bytes), 1.25 * kCount * bytes + 600'000) << bytes;
    FreeAll(blocks, bytes);
    for (int i = 0; i < 4; ++i) memory_.ReleaseIdle();
    EXPECT_EQ(memory_.stats().allocated_bytes, 0u) << bytes;
  }
}

TEST_F(SharedMemoryTest, FreedMemoryReturnsToTheSystem) {
  for (const size_t bytes : {size_t{400}, size_t{5000}, size_t{40'000}, size_t{1} << 20}) {
    const int count = static_cast<int>((8 << 20) / bytes);
    const std::vector<uint8_t*> blocks = AllocateMany(count, bytes);
    EXPECT_GE(ResidentBytes(), static_cast<int64_t>(count * bytes));
    FreeAll(blocks, bytes);
    EXPECT_GT(ResidentBytes(), 0) << "it is kept for a while";
    for (int i = 0; i < 4; ++i) memory_.ReleaseIdle();
    EXPECT_EQ(ResidentBytes(), 0) << bytes;
    EXPECT_EQ(memory_.stats().mapped_bytes, 0u);
  }
}

TEST_F(SharedMemoryTest, NeighboursOfALiveBlockReturnToo) {
  constexpr size_t kBytes = 400;
  std::vector<uint8_t*> blocks = AllocateMany(20'000, kBytes);
  uint8_t* const kept = blocks[10'000];
  blocks.erase(blocks.begin() + 10'000);
  FreeAll(blocks, kBytes);
  for (int i = 0; i < 4; ++i) memory_.ReleaseIdle();
  EXPECT_LE(ResidentBytes(), 64 << 10) << "one slab";
  EXPECT_EQ(std::ranges::count(std::span(kept, kBytes), 0xAB), static_cast<ptrdiff_t>(kBytes));
  memory_.Free(kept, kBytes);
}

TEST_F(SharedMemoryTest, ReleasedMemoryIsReused) {
  for (int round = 0; round < 20; ++round) {
    // Different sizes in each round: together they would need many segments.
    const size_t bytes = (size_t{1} << 20) + static_cast<size_t>(round) * 200'000;
    FreeAll(AllocateMany(4, bytes), bytes);
    memory_.ReleaseIdle();
    memory_.ReleaseIdle();
  }
  EXPECT_LE(memory_.num_segments(), 2u);
}

TEST_F(SharedMemoryTest, ABlockAsLargeAsASegmentFitsAndALargerOneDoesNot) {
  uint8_t* const block = memory_.Allocate(kSmallSegment);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(memory_.Find(block)->offset, 0u);
  memory_.Free(block, kSmallSegment);
  EXPECT_EQ(memory_.Allocate(kSmallSegment + 1), nullptr);
  EXPECT_EQ(memory_.Allocate(std::numeric_limits<size_t>::max()), nullptr);
}

TEST(SharedMemoryFullTest, WithoutFreeSegmentsNothingIsAllocated) {
  constexpr uint32_t kSegments = 2;
  ManualClock clock;
  SharedMemory memory(&clock, {.segment_bytes = kSmallSegment, .max_segments = kSegments});
  constexpr size_t kBytes = PooledBlocks::kSlabBytes + 1;  // fits once into a segment
  std::vector<uint8_t*> blocks;
  for (uint32_t i = 0; i < kSegments; ++i) blocks.push_back(memory.Allocate(kBytes));
  EXPECT_EQ(std::ranges::count(blocks, nullptr), 0);
  EXPECT_EQ(memory.num_segments(), kSegments);
  EXPECT_EQ(memory.Allocate(kBytes), nullptr);
  EXPECT_EQ(memory.Allocate(100), nullptr);
  memory.Free(blocks.back(), kBytes);
  for (int i = 0; i < 2; ++i) memory.ReleaseIdle();
  blocks.back() = memory.Allocate(100);
  EXPECT_NE(blocks.back(), nullptr);
  memory.Free(blocks.back(), 100);
  blocks.pop_back();
  for (uint8_t* const block : blocks) memory.Free(block, kBytes);
}

TEST_F(SharedMemoryTest, SeveralThreadsMayUseIt) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  struct Block {
    uint8_t* data;
    size_t bytes;
    uint8_t mark;
  };
  const auto check_and_free = [&](const Block& block) {
    EXPECT_EQ(block.data[0], block.mark);
    EXPECT_EQ(block.data[block.bytes - 1], block.mark);
    EXPECT_TRUE(memory_.Contains(block.data));
    memory_.Free(block.data, block.bytes);
  };
  // Half of the blocks are freed by another thread than the one that allocated them.
  Mutex mu;
  std::vector<Block> handed_over;
  std::atomic<bool> stop{false};
  std::thread releaser([&] {
    while (!stop) memory_.ReleaseIdle();
  });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      std::vector<Block> mine;
      for (int64_t i = 0; i < test::Effort(20'000, 4'000); ++i) {
        const size_t bytes = 1 + random() % (random() % 16 == 0 ? 100'000 : 3'000);
        const Block block{memory_.Allocate(bytes), bytes, static_cast<uint8_t>(random())};
        ASSERT_NE(block.data, nullptr);
        block.data[0] = block.data[bytes - 1] = block.mark;
        mine.push_back(block);
        if (mine.size() < 100) continue;
        std::swap(mine[random() % mine.size()], mine.back());
        Block out = mine.back();
        mine.pop_back();
        if (random() % 2 == 0) {
          MutexLock lock(&mu);
          handed_over.push_back(out);
          std::swap(handed_over[random() % handed_over.size()], handed_over.back());
          out = handed_over.back();
          handed_over.pop_back();
        }
        check_and_free(out);
      }
      for (const Block& block : mine) check_and_free(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  releaser.join();
  for (const Block& block : handed_over) check_and_free(block);
  for (int i = 0; i < 4; ++i) memory_.ReleaseIdle();
  EXPECT_EQ(memory_.stats().allocated_bytes, 0u);
  EXPECT_EQ(ResidentBytes(), 0);
}

// --- fork and limits of the process ---

// Runs `body` in a forked child. Returns its exit status, or minus the signal that ended it.
int RunInChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // turns a deadlock into a signal
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(ProcessSharedMemoryTest, AChildLeavesTheMemoryOfItsParentAlone) {
  SharedMemory* const memory = ProcessSharedMemory();
  struct Block {
    uint8_t* data;
    size_t bytes;
  };
  std::vector<Block> blocks;
  for (const size_t bytes : {size_t{200}, size_t{6000}, size_t{50'000}}) {
    blocks.push_back({memory->Allocate(bytes), bytes});
    ASSERT_NE(blocks.back().data, nullptr);
    std::memset(blocks.back().data, 0x11, bytes);
  }
  const uint32_t segments = memory->num_segments();
  EXPECT_EQ(RunInChild([&] {
              int pipe[2];
              if (::pipe(pipe) != 0) return 1;
              for (const Block& block : blocks) {
                if (block.data[block.bytes - 1] != 0x11) return 2;
                if (memory->Contains(block.data)) return 3;
                // The kernel refuses to write to it.
                if (::write(pipe[1], "x", 1) != 1 || ::read(pipe[0], block.data, 1) != -1) return 4;
                memory->Free(block.data, block.bytes);
                uint8_t* const mine = memory->Allocate(block.bytes);
                if (mine == nullptr) return 5;
                const auto place = memory->Find(mine);
                if (!place || place->segment < segments) return 6;
                std::memset(mine, 0x22, block.bytes);
                const auto mapped =
                    MappedSegment::Map(memory->descriptor(place->segment), memory->segment_bytes());
                if (!mapped.ok() || (*mapped)->Range(place->offset, 1).value()[0] != 0x22) return 7;
                memory->Free(mine, block.bytes);
              }
              memory->ReleaseIdle();
              memory->ReleaseIdle();
              // A grandchild has its own segments too.
              return RunInChild([&] {
                uint8_t* const mine = memory->Allocate(300);
                if (mine == nullptr || memory->Find(mine)->segment <= segments) return 8;
                return 0;
              });
            }),
            0);
  EXPECT_EQ(memory->num_segments(), segments);
  for (const Block& block : blocks) {
    EXPECT_EQ(std::ranges::count(std::span(block.data, block.bytes), 0x11),
              static_cast<ptrdiff_t>(block.bytes));
    EXPECT_TRUE(memory->Contains(block.data));
    memory->Free(block.data, block.bytes);
  }
}

TEST(ProcessSharedMemoryTest, AForkWhileThreadsAllocateIsSafe) {
#ifdef REVERB_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked child";
#else
  SharedMemory* const memory = ProcessSharedMemory();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const size_t bytes : {size_t{200}, size_t{40'000}}) {
    // Not under AddressSanitizer, whose allocator may itself be locked at a fork.
    threads.emplace_back([&, bytes] {
      while (!stop && !test::kSanitized) {
        std::vector<uint8_t*> blocks(100);
        for (uint8_t*& block : blocks) block = memory->Allocate(bytes);
        for (uint8_t* const block : blocks) memory->Free(block, bytes);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(RunInChild([&] {
                for (const size_t bytes : {size_t{200}, size_t{40'000}}) {
                  uint8_t* const block = memory->Allocate(bytes);
                  if (block == nullptr) return 1;
                  memory->Free(block, bytes);
                }
                return 0;
              }),
              0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
#endif
}

// Returns the address space that this process uses.
rlim_t AddressSpaceBytes() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

TEST(SharedMemoryLimitsTest, ALimitOfTheProcessIsAnErrorAndNoSignal) {
  const auto set_limit = [](auto resource, rlim_t value) {
    rlimit limit{};
    (void)::getrlimit(resource, &limit);
    limit.rlim_cur = value;
    return ::setrlimit(resource, &limit) == 0;
  };
  ManualClock clock;
  EXPECT_EQ(RunInChild([&] {
              if (!set_limit(RLIMIT_FSIZE, 1 << 20)) return 1;
              SharedMemory memory(&clock);
              if (memory.Allocate(1000) != nullptr) return 2;
              const Status status = memory.CheckAvailable();
              return status.message().find("ulimit -f") != std::string_view::npos ? 0 : 3;
            }),
            0);
  EXPECT_EQ(RunInChild([&] {
              SharedMemory memory(&clock);
              if (!set_limit(RLIMIT_NOFILE, 3)) return 1;
              if (memory.Allocate(1000) != nullptr || memory.CheckAvailable().ok()) return 2;
              if (!set_limit(RLIMIT_NOFILE, 50)) return 3;
              uint8_t* const block = memory.Allocate(1000);
              if (block == nullptr) return 4;
              memory.Free(block, 1000);
              return 0;
            }),
            0);
  if (test::kSanitized) return;  // sanitizers reserve more addresses than that
  EXPECT_EQ(RunInChild([&] {
              if (!set_limit(RLIMIT_AS, AddressSpaceBytes() + (rlim_t{20} << 30))) return 1;
              SharedMemory memory(&clock);
              uint8_t* const block = memory.Allocate(1000);
              if (block == nullptr) return 2;
              memory.Free(block, 1000);
              if (!set_limit(RLIMIT_AS, AddressSpaceBytes() + (rlim_t{1} << 30))) return 3;
              SharedMemory none(&clock);
              return none.Allocate(1000) == nullptr && !none.CheckAvailable().ok() ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace reverb::internal
