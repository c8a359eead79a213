#include "tensor/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensor/column.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

// Columns of several blocks, of one, and of empty rows.
class RawChunkTest : public testing::Test {
 protected:
  static constexpr uint32_t kRows = 300;

  RawChunkTest() {
    for (const std::vector<uint32_t>& shape : {std::vector<uint32_t>{1000}, {3}, {0}}) {
      Bytes& rows = rows_.emplace_back(kRows * NumElements(shape));
      std::iota(rows.begin(), rows.end(), static_cast<uint8_t>(rows_.size()));
      ColumnEncoder encoder(DType::kUint8, shape, CodecPolicy::kNone);
      const Result<bool> is_raw = encoder.StoresRaw(rows, kRows, &header_.columns.emplace_back());
      EXPECT_OK(is_raw);
      EXPECT_TRUE(is_raw.ok() && *is_raw);
      Bytes payload;
      expected_.columns.push_back(encoder.Encode(rows, kRows, &payload).value());
    }
    header_.rows = expected_.rows = kRows;
    header_.last_step = expected_.last_step = kRows - 1;
    for (const Bytes& rows : rows_) columns_.emplace_back(rows);
  }

  ChunkHeader header_, expected_;
  std::vector<Bytes> rows_;
  std::vector<std::span<const uint8_t>> columns_;
};

TEST_F(RawChunkTest, HasTheChecksumsOfItsRows) {
  ASSERT_GT(header_.columns[0].blocks.size(), 1u);
  const Result<ChunkRef> chunk = Chunk::CopyRaw(7, header_, columns_);
  ASSERT_OK(chunk);
  EXPECT_EQ((*chunk)->id(), 7u);
  EXPECT_EQ((*chunk)->header().Unpack(), expected_);
  for (uint32_t i = 0; i < rows_.size(); ++i) {
    EXPECT_THAT((*chunk)->column_payload(i), testing::ElementsAreArray(rows_[i]));
    EXPECT_OK(VerifyChecksums((*chunk)->header().column(i), (*chunk)->column_payload(i)));
  }
}

TEST_F(RawChunkTest, RowsThatDoNotMatchTheHeaderAreRejected) {
  columns_[1] = columns_[1].first(10);
  EXPECT_THAT(Chunk::CopyRaw(7, header_, columns_), StatusIs(StatusCode::kDataLoss));
  // The sum is right.
  columns_[1] = rows_[0];
  columns_[0] = rows_[1];
  EXPECT_THAT(Chunk::CopyRaw(7, header_, columns_),
              StatusIs(StatusCode::kDataLoss, HasSubstr("of column 0")));
}

}  // namespace
}  // namespace reverb::internal
