#include "tensor/row_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>
#include <vector>

namespace reverb::internal {
namespace {

using Shape2 = std::array<uint32_t, 2>;

TEST(RowLayoutTest, SameLayoutsHaveTheSameNumberAndOthersAnotherOne) {
  const Shape2 shape = {3, 4}, other_shape = {4, 3};
  const RowLayoutColumn base{.dtype = DType::kFloat32, .squeeze = true, .length = 1, .row_shape = shape};
  const RowLayoutColumn scalar{.dtype = DType::kInt64, .length = 5};
  const auto number = [](std::vector<RowLayoutColumn> columns) { return RowLayoutNumber(columns); };
  const Shape2 equal_shape = shape;
  RowLayoutColumn same = base;
  same.row_shape = equal_shape;
  EXPECT_NE(number({base, scalar}), 0u);
  EXPECT_EQ(number({base, scalar}), number({same, scalar}));

  RowLayoutColumn dtype = base, squeeze = base, length = base, row_shape = base, rank = base;
  dtype.dtype = DType::kInt32;
  squeeze.squeeze = false;
  length.length = 2;
  row_shape.row_shape = other_shape;
  rank.row_shape = base.row_shape.first(1);
  std::set<uint32_t> numbers = {number({base, scalar}), number({scalar, base}), number({base}),
                                number({base, base})};
  for (const RowLayoutColumn& column : {dtype, squeeze, length, row_shape, rank}) {
    numbers.insert(number({column, scalar}));
  }
  EXPECT_EQ(numbers.size(), 9u);
  EXPECT_FALSE(numbers.contains(0));
}

TEST(RowLayoutTest, LayoutsOfManyColumnsOrDimensionsHaveNone) {
  EXPECT_EQ(RowLayoutNumber({}), 0u);
  std::vector<RowLayoutColumn> columns(kMaxRowLayoutColumns, {.length = 1});
  EXPECT_NE(RowLayoutNumber(columns), 0u);
  columns.push_back({.length = 1});
  EXPECT_EQ(RowLayoutNumber(columns), 0u);
  const std::vector<uint32_t> dims(kMaxRowLayoutDims, 1);
  columns.assign(1, {.length = 1, .row_shape = dims});
  EXPECT_NE(RowLayoutNumber(columns), 0u);
  columns.push_back({.length = 1, .row_shape = std::span(dims).first(1)});
  EXPECT_EQ(RowLayoutNumber(columns), 0u);
}

TEST(RowLayoutTest, ThreadsAgree) {
  constexpr size_t kThreads = 4, kLayouts = 64;
  std::vector<std::vector<uint32_t>> numbers(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::vector<uint32_t>& of_thread : numbers) {
      threads.emplace_back([&of_thread] {
        for (uint32_t length = 1; length <= kLayouts; ++length) {
          const RowLayoutColumn column{.dtype = DType::kUint8, .length = length};
          of_thread.push_back(RowLayoutNumber({&column, 1}));
        }
      });
    }
  }
  for (const std::vector<uint32_t>& of_thread : numbers) EXPECT_EQ(of_thread, numbers[0]);
  EXPECT_EQ(std::set<uint32_t>(numbers[0].begin(), numbers[0].end()).size(), kLayouts);
}

// Last: fills the table.
TEST(RowLayoutTest, TheNumberOfLayoutsIsBounded) {
  std::set<uint32_t> numbers;
  uint32_t first_without = 0;
  for (uint32_t length = 1; length <= 2 * kMaxRowLayouts; ++length) {
    const RowLayoutColumn column{.dtype = DType::kInt8, .length = length};
    const uint32_t number = RowLayoutNumber({&column, 1});
    if (number == 0 && first_without == 0) first_without = length;
    if (number == 0) continue;
    EXPECT_TRUE(numbers.insert(number).second) << length;
  }
  EXPECT_LE(numbers.size(), kMaxRowLayouts);
  EXPECT_GT(numbers.size(), kMaxRowLayouts / 2);
  // One that had a number keeps it.
  ASSERT_GT(first_without, 1u);
  const RowLayoutColumn known{.dtype = DType::kInt8, .length = 1};
  EXPECT_TRUE(numbers.contains(RowLayoutNumber({&known, 1})));
}

}  // namespace
}  // namespace reverb::internal
