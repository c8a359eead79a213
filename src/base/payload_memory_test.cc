#include "base/payload_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/thread_sanitizer.h"

namespace reverb::internal {
namespace {

constexpr size_t kBlock = 40'000;

// Only reached if the test hangs.
constexpr std::chrono::seconds kHangTimeout(60);

class PayloadMemoryTest : public testing::Test {
 protected:
  void* Allocate(size_t bytes) {
    void* const block = memory_.Allocate(bytes);
    EXPECT_NE(block, nullptr);
    if (block != nullptr) std::memset(block, 0xAB, bytes);
    return block;
  }
  std::vector<void*> AllocateMany(int count) {
    std::vector<void*> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(Allocate(kBlock));
    return blocks;
  }
  void FreeAll(const std::vector<void*>& blocks) {
    for (void* const block : blocks) memory_.Free(block, kBlock);
  }
  // Runs what is queued for the background thread.
  static void AwaitBackground() {
    std::promise<void> done;
    RunInBackground([&] { done.set_value(); });
    ASSERT_EQ(done.get_future().wait_for(kHangTimeout), std::future_status::ready);
  }

  ManualClock clock_;
  PayloadMemory memory_{&clock_};
};

// REQUIRES: `block` is page-aligned.
int CountPresentPages(void* block, size_t bytes) {
  std::vector<unsigned char> present((bytes + 4095) / 4096);
  EXPECT_EQ(::mincore(block, bytes, present.data()), 0);
  return static_cast<int>(std::ranges::count_if(present, [](unsigned char each) { return (each & 1) != 0; }));
}

TEST_F(PayloadMemoryTest, SmallBlocksAreNotPooled) {
  for (const size_t bytes : {size_t{1}, size_t{400}, PayloadMemory::kMinPooledBytes - 1}) {
    void* const block = Allocate(bytes);
    EXPECT_EQ(memory_.stats().mapped_bytes, 0u);
    memory_.Free(block, bytes);
  }
  EXPECT_EQ(memory_.stats().idle_bytes, 0u);
}

TEST_F(PayloadMemoryTest, AFreedBlockIsAllocatedNext) {
  void* const first = Allocate(kBlock);
  void* const second = Allocate(kBlock);
  memory_.Free(first, kBlock);
  EXPECT_EQ(Allocate(kBlock + 100), first);
  memory_.Free(first, kBlock + 100);
  memory_.Free(second, kBlock);
  EXPECT_EQ(memory_.stats().allocated_bytes, 0u);
}

TEST_F(PayloadMemoryTest, SizesAreRoundedUpByAnEighthAtMost) {
  for (size_t bytes = PayloadMemory::kMinPooledBytes; bytes < size_t{1} << 40; bytes += bytes / 7 + 1) {
    void* const block = memory_.Allocate(bytes);
    if (block == nullptr) break;  // no address space
    const size_t rounded = memory_.stats().allocated_bytes;
    EXPECT_GE(rounded, bytes);
    EXPECT_LE(rounded, bytes + std::max<size_t>(bytes / 8, 4 * 4096)) << bytes;
    EXPECT_EQ(rounded % 4096, 0u);
    memory_.Free(block, bytes);
    memory_.ReleaseIdle();
    memory_.ReleaseIdle();
    EXPECT_EQ(memory_.stats().mapped_bytes, 0u) << bytes;
  }
}

TEST_F(PayloadMemoryTest, AnImpossibleSizeIsNull) {
  EXPECT_EQ(memory_.Allocate(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(memory_.Allocate(std::numeric_limits<size_t>::max() / 2), nullptr);
}

TEST_F(PayloadMemoryTest, BlocksThatStayIdleReturnToTheSystem) {
  FreeAll(AllocateMany(2000));
  const size_t idle = memory_.stats().idle_bytes;
  EXPECT_GE(idle, 2000 * kBlock);
  memory_.ReleaseIdle();  // none was idle before
  EXPECT_EQ(memory_.stats().idle_bytes, idle);
  memory_.ReleaseIdle();
  EXPECT_EQ(memory_.stats().idle_bytes, 0u);
  EXPECT_EQ(memory_.stats().mapped_bytes, 0u);
}

TEST_F(PayloadMemoryTest, NeighboursOfAnAllocatedBlockReturnToo) {
  std::vector<void*> blocks = AllocateMany(100);
  void* const kept = blocks[50];
  blocks.erase(blocks.begin() + 50);
  FreeAll(blocks);
  memory_.ReleaseIdle();
  memory_.ReleaseIdle();
  for (void* const block : blocks) EXPECT_EQ(CountPresentPages(block, kBlock), 0);
  EXPECT_GT(memory_.stats().mapped_bytes, 0u);
  EXPECT_EQ(static_cast<uint8_t*>(kept)[kBlock - 1], 0xAB);
  // Their addresses are reused.
  const size_t mapped = memory_.stats().mapped_bytes;
  blocks = AllocateMany(99);
  EXPECT_EQ(memory_.stats().mapped_bytes, mapped);
  FreeAll(blocks);
  memory_.Free(kept, kBlock);
}

TEST_F(PayloadMemoryTest, BlocksThatWereReusedMeanwhileStay) {
  FreeAll(AllocateMany(10));
  const size_t block_bytes = memory_.stats().idle_bytes / 10;
  memory_.ReleaseIdle();
  FreeAll(AllocateMany(4));
  memory_.ReleaseIdle();
  EXPECT_EQ(memory_.stats().idle_bytes, 4 * block_bytes);
}

TEST_F(PayloadMemoryTest, IdleBlocksAreReleasedPeriodically) {
  const std::vector<void*> blocks = AllocateMany(2000);
  EXPECT_EQ(clock_.pending(), 0);
  FreeAll(blocks);
  EXPECT_EQ(clock_.pending(), 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(memory_.stats().idle_bytes, 0u);
    clock_.Advance(PayloadMemory::kReleaseInterval);
    for (int step = 0; step < 10; ++step) AwaitBackground();  // each releases some
  }
  EXPECT_EQ(memory_.stats().idle_bytes, 0u);
  EXPECT_EQ(clock_.pending(), 0) << "nothing is left to do";
}

TEST_F(PayloadMemoryTest, SeveralThreadsMayUseIt) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  std::atomic<bool> stop{false};
  std::thread releaser([&] {
    while (!stop) memory_.ReleaseIdle();
  });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      std::vector<std::pair<uint64_t*, size_t>> blocks;
      for (int i = 0; i < 5000; ++i) {
        if (blocks.size() < 20) {
          const size_t bytes = 8'000 + random() % 100'000;
          auto* const block = static_cast<uint64_t*>(memory_.Allocate(bytes));
          ASSERT_NE(block, nullptr);
          block[0] = block[bytes / 8 - 1] = t << 32 | static_cast<uint64_t>(i);
          blocks.emplace_back(block, bytes);
        }
        if (random() % 2 == 0) continue;
        std::swap(blocks[random() % blocks.size()], blocks.back());
        const auto [block, bytes] = blocks.back();
        blocks.pop_back();
        EXPECT_EQ(block[0] >> 32, t);
        EXPECT_EQ(block[0], block[bytes / 8 - 1]);
        memory_.Free(block, bytes);
      }
      for (const auto& [block, bytes] : blocks) memory_.Free(block, bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  releaser.join();
  memory_.ReleaseIdle();
  memory_.ReleaseIdle();
  EXPECT_EQ(memory_.stats().allocated_bytes, 0u);
  EXPECT_EQ(memory_.stats().mapped_bytes, 0u);
}

TEST(ProcessPayloadMemoryTest, AForkedChildCanUseIt) {
#ifdef REVERB_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked child";
#else
  PayloadMemory* const memory = ProcessPayloadMemory();
  // Keeps the lock busy, so that some forks happen while it is held. Not under AddressSanitizer, whose
  // allocator may itself be locked at a fork.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop && !test::kSanitized) memory->Free(memory->Allocate(kBlock), kBlock);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(30);  // turns a deadlock into a signal
      void* const block = memory->Allocate(kBlock);
      if (block == nullptr) _exit(1);
      memory->Free(block, kBlock);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  busy.join();
#endif
}

}  // namespace
}  // namespace reverb::internal
