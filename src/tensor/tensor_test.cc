#include "reverb/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "testing/status_matchers.h"

namespace reverb {
namespace {

using test::StatusIs;

TEST(DTypeTest, NamesRoundTripAndNumbersMatchTensorFlow) {
  EXPECT_EQ(AllDTypes().size(), 16u);
  for (DType dtype : AllDTypes()) {
    EXPECT_TRUE(IsKnownDType(static_cast<uint8_t>(dtype)));
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
    EXPECT_EQ(ItemSize(dtype) == 0, dtype == DType::kString);
  }
  EXPECT_EQ(static_cast<int>(DType::kFloat16), 19);
  EXPECT_EQ(static_cast<int>(DType::kUint64), 23);
}

TEST(DTypeTest, OtherNumbersAndNamesAreUnknown) {
  int known = 0;
  for (int number = 0; number < 256; ++number) known += IsKnownDType(static_cast<uint8_t>(number));
  EXPECT_EQ(known, 16);
  EXPECT_EQ(ParseDType("float"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
  EXPECT_EQ(DTypeName(static_cast<DType>(200)), "unknown");
  EXPECT_EQ(ItemSize(static_cast<DType>(200)), 0u);
}

TEST(DTypeTest, BoolAndFloatsAreNotIntegers) {
  int integers = 0;
  for (DType dtype : AllDTypes()) integers += IsInteger(dtype);
  EXPECT_EQ(integers, 8);
  EXPECT_FALSE(IsInteger(DType::kBool));
  EXPECT_FALSE(IsInteger(DType::kBfloat16));
}

TEST(ShapeTest, ToStringShowsUnknowns) {
  EXPECT_EQ((Shape{-1, 84, 84}).ToString(), "[?, 84, 84]");
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape::UnknownRank().ToString(), "<unknown>");
}

TEST(ShapeTest, CompatibleWhenEqualOrUnknown) {
  const Shape known = {3, 4};
  EXPECT_TRUE(known.IsCompatibleWith({3, 4}));
  EXPECT_TRUE(known.IsCompatibleWith({-1, 4}));
  EXPECT_TRUE((Shape{-1, -1}).IsCompatibleWith(known));
  EXPECT_TRUE(known.IsCompatibleWith(Shape::UnknownRank()));
  EXPECT_TRUE(Shape::UnknownRank().IsCompatibleWith(known));
  EXPECT_FALSE(known.IsCompatibleWith({3, 5}));
  EXPECT_FALSE(known.IsCompatibleWith({3}));
  EXPECT_FALSE(known.IsCompatibleWith(Shape()));
}

TEST(ShapeTest, NumElementsIsCheckedForOverflow) {
  EXPECT_EQ(*Shape().NumElements(), 1);
  EXPECT_EQ(*(Shape{3, 4}).NumElements(), 12);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(*(Shape{huge, huge, 0}).NumElements(), 0);
  EXPECT_THAT((Shape{huge, huge}).NumElements(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT((Shape{-1, 2}).NumElements(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT((Shape{-7}).NumElements(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Shape::UnknownRank().NumElements(), StatusIs(StatusCode::kInvalidArgument));
}

TEST(TensorTest, IsAlignedAndCopies) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> dims = {2, 3};
  auto tensor = Tensor::CopyOf({DType::kFloat32, dims, values.data()});
  ASSERT_OK(tensor);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data()) % Tensor::kAlignment, 0u);
  EXPECT_EQ(tensor->num_bytes(), 24u);
  EXPECT_EQ(std::memcmp(tensor->data(), values.data(), 24), 0);
  const Tensor moved = *std::move(tensor);
  EXPECT_EQ(moved.view().num_elements(), 6u);
  EXPECT_EQ(moved.view().bytes().size(), 24u);
}

TEST(TensorTest, HoldsStringsWithNuls) {
  const std::vector<std::string_view> values = {std::string_view("a\0b", 3), "", "xyz"};
  const std::vector<int64_t> dims = {3};
  auto tensor = Tensor::CopyOf({DType::kString, dims, values.data()});
  ASSERT_OK(tensor);
  EXPECT_EQ(tensor->strings()[0].size(), 3u);
  std::vector<std::string_view> elements;
  const TensorView view = tensor->view(&elements);
  ASSERT_EQ(view.strings().size(), 3u);
  EXPECT_EQ(view.strings()[2], "xyz");
  EXPECT_EQ(view.num_bytes(), 0u);
}

TEST(TensorTest, RejectsInvalidArguments) {
  EXPECT_THAT(Tensor::Allocate(DType::kFloat32, {-1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tensor::Allocate(static_cast<DType>(99), {1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tensor::Allocate(DType::kFloat64, {int64_t{1} << 60}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tensor::Allocate(DType::kString, {int64_t{1} << 60}), StatusIs(StatusCode::kInvalidArgument));
  auto empty = Tensor::Allocate(DType::kFloat64, {0, 5});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->num_bytes(), 0u);
}

}  // namespace
}  // namespace reverb
