#include "client/row_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "client/fake_sink_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::Scalar;
using ::testing::ElementsAre;

TEST(RowBufferTest, ReturnsFixedSizeRows) {
  RowBuffer buffer;
  for (const int64_t value : {5, 6, 7}) buffer.Append(Scalar(value));
  Tensor tensor = Tensor::Allocate(DType::kInt64, {}).value();
  buffer.Read(1, &tensor);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(tensor.data()), 6);

  ColumnEncoder encoder(DType::kInt64, {}, CodecPolicy::kNone);
  std::vector<std::string_view> strings;
  std::vector<uint8_t> payload;
  ColumnHeader header;
  ASSERT_OK(buffer.Encode(&encoder, 0, 3, 3, &strings, &payload, &header));
  std::array<int64_t, 3> decoded;
  ASSERT_OK(DecodeRows(ColumnView(header, 3), payload, 0, 3,
                       {reinterpret_cast<uint8_t*>(decoded.data()), sizeof(decoded)}));
  EXPECT_THAT(decoded, ElementsAre(5, 6, 7));
}

TEST(RowBufferTest, ReturnsStringsOfSeveralElements) {
  RowBuffer buffer;
  const std::vector<int64_t> dims = {2};
  const std::array<std::string_view, 2> old = {"old", "rows"};
  buffer.Append({.dtype = DType::kString, .dims = dims, .data = old.data()});
  buffer.Clear();
  const std::array<std::string_view, 2> first = {"", "ab"}, second = {"c", ""};
  buffer.Append({.dtype = DType::kString, .dims = dims, .data = first.data()});
  buffer.Append({.dtype = DType::kString, .dims = dims, .data = second.data()});
  Tensor tensor = Tensor::Allocate(DType::kString, {2}).value();
  buffer.Read(1, &tensor);
  EXPECT_THAT(tensor.strings(), ElementsAre("c", ""));

  ColumnEncoder encoder(DType::kString, {2}, CodecPolicy::kNone);
  std::vector<std::string_view> strings;
  std::vector<uint8_t> payload;
  ColumnHeader header;
  ASSERT_OK(buffer.Encode(&encoder, 0, 2, 2, &strings, &payload, &header));
  std::vector<std::string> decoded;
  ASSERT_OK(DecodeStringRows(ColumnView(header, 2), payload, 0, 2, &decoded));
  EXPECT_THAT(decoded, ElementsAre("", "ab", "c", ""));
}

TEST(RowBufferTest, RemovesAndEncodesSomeOfTheRows) {
  RowBuffer numbers;
  RowBuffer words;
  const std::array<int64_t, 4> values = {5, 6, 7, 8};
  const std::array<std::string_view, 4> texts = {"a", "", "bcd", "e"};
  const std::vector<int64_t> dims = {4};
  numbers.Append(TensorView{.dtype = DType::kInt64, .dims = dims, .data = values.data()}.bytes());
  words.Append({.dtype = DType::kString, .dims = dims, .data = texts.data()});
  EXPECT_EQ(numbers.FirstStringBytes(2, 4), 0u);
  EXPECT_EQ(words.FirstStringBytes(3, 4), StringBytes("a") + StringBytes("") + StringBytes("bcd"));

  ColumnEncoder encoder(DType::kString, {}, CodecPolicy::kNone);
  std::vector<std::string_view> strings;
  std::vector<uint8_t> payload;
  ColumnHeader header;
  ASSERT_OK(words.Encode(&encoder, 1, 2, 4, &strings, &payload, &header));
  std::vector<std::string> decoded;
  ASSERT_OK(DecodeStringRows(ColumnView(header, 2), payload, 0, 2, &decoded));
  EXPECT_THAT(decoded, ElementsAre("", "bcd"));

  numbers.RemoveFirst(3, 4);
  words.RemoveFirst(2, 4);
  Tensor number = Tensor::Allocate(DType::kInt64, {}).value();
  numbers.Read(0, &number);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(number.data()), 8);
  Tensor word = Tensor::Allocate(DType::kString, {}).value();
  words.Read(0, &word);
  EXPECT_THAT(word.strings(), ElementsAre("bcd"));
  words.Read(1, &word);
  EXPECT_THAT(word.strings(), ElementsAre("e"));
}

TEST(RowBufferTest, EmptyRowsNeedNoBytes) {
  RowBuffer buffer;
  const std::vector<int64_t> dims = {0};
  buffer.Append({.dtype = DType::kFloat32, .dims = dims, .data = nullptr});
  Tensor tensor = Tensor::Allocate(DType::kFloat32, {0}).value();
  buffer.Read(0, &tensor);
  EXPECT_EQ(tensor.num_bytes(), 0u);
}

TEST(RowBufferTest, ShortStringsCountAsMuchAsTheirMinimum) {
  EXPECT_EQ(StringBytes(""), kMinStringBytes);
  EXPECT_EQ(StringBytes(std::string(100, 'x')), 104u);
}

}  // namespace
}  // namespace reverb::internal
