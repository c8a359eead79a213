#include "base/buffer.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reverb::internal {
namespace {

std::string Text(const Buffer& buffer) {
  return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

// Records its destruction.
class Probe final : public BufferOwner {
 public:
  explicit Probe(int* deaths) : deaths_(deaths) {}

 private:
  ~Probe() override { ++*deaths_; }
  int* const deaths_;
};

TEST(BufferTest, IsEmptyByDefault) {
  const Buffer buffer;
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_TRUE(buffer.Slice(0, 0).empty());
}

TEST(BufferTest, AllocateGivesWritableAlignedBytesOfEverySize) {
  for (const size_t size : {0, 1, 15, 16, 17, 100, 4095, 4096, 4097, 1 << 20}) {
    uint8_t* out = nullptr;
    const Buffer buffer = Buffer::Allocate(size, &out);
    ASSERT_NE(out, nullptr) << size;
    EXPECT_EQ(buffer.data(), out);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(out) % (size >= 4096 ? 64 : 16), 0u) << size;
    if (size > 0) std::memset(out, 0xAB, size);  // AddressSanitizer checks the bounds
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(buffer.data()[i], 0xAB);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
// Sanitizers abort the process instead.
TEST(BufferTest, AnImpossibleSizeIsBadAllocNotASmallBlock) {
  uint8_t* out = nullptr;
  for (const size_t less : {0, 1, 16, 64, 128}) {
    volatile size_t size = std::numeric_limits<size_t>::max() - less;
    EXPECT_THROW(Buffer::Allocate(size, &out), std::bad_alloc);
  }
}
#endif

TEST(BufferTest, CopyOfOwnsItsBytes) {
  std::string source = "some bytes";
  const Buffer from_text = Buffer::CopyOf(source);
  const Buffer from_span =
      Buffer::CopyOf(std::span(reinterpret_cast<const uint8_t*>(source.data()), source.size()));
  source.assign(source.size(), 'x');
  EXPECT_EQ(Text(from_text), "some bytes");
  EXPECT_EQ(Text(from_span), "some bytes");
  EXPECT_TRUE(Buffer::CopyOf(std::string_view()).empty());
}

TEST(BufferTest, TheOwnerIsDestroyedWithTheLastReference) {
  static const uint8_t bytes[4] = {1, 2, 3, 4};
  int deaths = 0;
  Buffer first(new Probe(&deaths), bytes, sizeof(bytes));
  Buffer copy = first;
  Buffer slice = copy.Slice(1, 2);
  EXPECT_EQ(slice.data(), bytes + 1);
  EXPECT_EQ(slice.size(), 2u);
  const Buffer moved = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT: a moved-from Buffer is empty
  copy = Buffer();
  EXPECT_EQ(deaths, 0);
  slice = slice.Slice(1, 1);
  EXPECT_EQ(slice.data()[0], 3);
  slice = Buffer();
  EXPECT_EQ(deaths, 0);
  first = moved;
  const Buffer& alias = first;
  first = alias;
  EXPECT_EQ(first.size(), 4u);
  EXPECT_EQ(deaths, 0);
  first = Buffer();
  const_cast<Buffer&>(moved) = Buffer();
  EXPECT_EQ(deaths, 1);
}

TEST(BufferTest, StaticBytesNeedNoOwner) {
  static const uint8_t bytes[2] = {7, 8};
  const Buffer buffer(nullptr, bytes, 2);
  const Buffer slice = buffer.Slice(1, 1);
  EXPECT_EQ(slice.data()[0], 8);
}

TEST(BufferTest, ReferencesMayBeTakenAndDroppedOnManyThreads) {
  int deaths = 0;
  static const uint8_t bytes[64] = {};
  {
    const Buffer shared(new Probe(&deaths), bytes, sizeof(bytes));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([mine = shared] {
        for (int i = 0; i < 2000; ++i) {
          const Buffer copy = mine;
          ASSERT_EQ(copy.Slice(i % 64, 1).data()[0], 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(deaths, 1);
}

}  // namespace
}  // namespace reverb::internal
