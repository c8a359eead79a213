#include "base/flat_array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace reverb::internal {
namespace {

TEST(FlatArrayTest, KeepsElementsWhileItGrows) {
  FlatArray<uint32_t> array;
  std::vector<uint32_t> model;
  for (uint32_t i = 0; i < 300'000; ++i) {
    array.PushBack(i * 7);
    model.push_back(i * 7);
  }
  array.Resize(500'000, 9);
  model.resize(500'000, 9);
  ASSERT_EQ(array.size(), model.size());
  for (size_t i = 0; i < model.size(); ++i) ASSERT_EQ(array[i], model[i]) << i;
  array.PopBack();
  EXPECT_EQ(array.back(), 9u);
  array.Clear();
  EXPECT_TRUE(array.empty());
  array.PushBack(array.size() == 0 ? 5 : 6);
  EXPECT_EQ(array.front(), 5u);
}

TEST(FlatArrayTest, AnElementCanBeAppendedToItsOwnArray) {
  FlatArray<uint64_t> array;
  array.PushBack(1);
  while (array.size() < 100'000) array.PushBack(array[array.size() - 1] + 1);
  for (size_t i = 0; i < array.size(); ++i) ASSERT_EQ(array[i], i + 1);
  array.Resize(200'000, array.front());
  EXPECT_EQ(array.back(), 1u);
}

TEST(GrowingMemoryTest, IsZeroAndAligned) {
  GrowingMemory memory;
  size_t checked = 0;
  for (size_t bytes = 64; bytes <= size_t{4} << 20; bytes *= 2) {
    memory.Grow(bytes);
    EXPECT_GE(memory.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0u);
    for (; checked < memory.bytes(); ++checked) ASSERT_EQ(memory.data()[checked], std::byte{0}) << checked;
    for (size_t i = 0; i < memory.bytes(); ++i) memory.data()[i] = std::byte{1};
    for (size_t i = 0; i < memory.bytes(); ++i) ASSERT_EQ(memory.data()[i], std::byte{1});
  }
  GrowingMemory moved(std::move(memory));
  EXPECT_EQ(moved.data()[0], std::byte{1});
  moved.Free();
  EXPECT_EQ(moved.data(), nullptr);
}

// A gigabyte of elements that were never written takes no memory, and growing it does not read them.
TEST(GrowingMemoryTest, GrowsWithoutTouchingItsPages) {
  FlatArray<uint64_t> array;
  array.Reserve(size_t{1} << 27);
  const size_t bytes = array.size();
  array.Reserve(size_t{1} << 40 >> 10);
  EXPECT_EQ(array.size(), bytes);
  array.PushBack(3);
  EXPECT_EQ(array[0], 3u);
}

}  // namespace
}  // namespace reverb::internal
