#include "client/chunk_length_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace reverb::internal {
namespace {

// Simulates rows in chunks of the tuned length, and items over them.
class Model {
 public:
  Model(int64_t max_length, int64_t chunk_overhead, int64_t row_bytes)
      : tuner_(max_length, 1.0), overhead_(chunk_overhead), row_bytes_(row_bytes) {}

  void AddRow() {
    rows_.push_back(next_chunk_);
    if (++filled_ < tuner_.length()) return;
    lengths_[next_chunk_++] = filled_;
    filled_ = 0;
    for (const auto& [first, last] : waiting_) Send(first, last);
    waiting_.clear();
  }
  // Creates an item over the last `n` rows, which is sent once they are all in chunks.
  void AddItem(size_t n) {
    waiting_.emplace_back(rows_.size() - n, rows_.size());
    if (filled_ > 0) return;
    Send(rows_.size() - n, rows_.size());
    waiting_.clear();
  }
  int64_t length() const { return tuner_.length(); }

 private:
  void Send(size_t first, size_t last) {
    uint64_t seen = 0;
    for (size_t i = first; i < last; ++i) {
      if (rows_[i] == seen) continue;
      seen = rows_[i];
      tuner_.AddChunk(seen, lengths_.at(seen), overhead_ + lengths_.at(seen) * row_bytes_);
    }
    tuner_.AddItem(static_cast<int64_t>(last - first));
  }

  ChunkLengthTuner tuner_;
  int64_t overhead_;
  int64_t row_bytes_;
  uint64_t next_chunk_ = 1;
  int64_t filled_ = 0;
  std::vector<uint64_t> rows_;  // the chunk of each row
  std::map<uint64_t, int64_t> lengths_;
  std::vector<std::pair<size_t, size_t>> waiting_;
};

TEST(ChunkLengthTunerTest, StartsWithOneAndFirstGoesUpByTwo) {
  ChunkLengthTuner tuner(10, 1.0);
  EXPECT_EQ(tuner.length(), 1);
  for (uint64_t i = 0; i < 9; ++i) {
    tuner.AddChunk(i, 1, 100);
    tuner.AddItem(1);
    EXPECT_EQ(tuner.length(), 1);
  }
  tuner.AddChunk(9, 1, 100);
  tuner.AddItem(1);
  EXPECT_EQ(tuner.length(), 3);
}

TEST(ChunkLengthTunerTest, NeverExceedsTheMaximum) {
  ChunkLengthTuner tuner(2, 1.0);
  for (uint64_t i = 0; i < 10; ++i) {
    tuner.AddChunk(i, 1, 100);
    tuner.AddItem(1);
  }
  EXPECT_EQ(tuner.length(), 2);
}

TEST(ChunkLengthTunerTest, NeedsFiveDistinctChunks) {
  ChunkLengthTuner tuner(10, 1.0);
  for (int i = 0; i < 100; ++i) {
    tuner.AddChunk(i % 4, 1, 100);
    tuner.AddItem(1);
  }
  EXPECT_EQ(tuner.length(), 1);
  tuner.AddChunk(4, 1, 100);
  tuner.AddItem(1);
  EXPECT_EQ(tuner.length(), 3);
}

TEST(ChunkLengthTunerTest, SingleRowsOfRandomDataConvergeToLengthOne) {
  Model model(10, 100, 1000);
  for (int i = 0; i < 2000; ++i) {
    model.AddRow();
    model.AddItem(1);
  }
  EXPECT_EQ(model.length(), 1);
}

TEST(ChunkLengthTunerTest, OverlappingItemsOfRandomDataConvergeToShortChunks) {
  Model model(10, 100, 1000);
  for (int i = 0; i < 2000; ++i) {
    model.AddRow();
    if (i >= 9) model.AddItem(10);
  }
  EXPECT_LE(model.length(), 3);
}

TEST(ChunkLengthTunerTest, AdjacentItemsOfConstantDataConvergeToLongChunks) {
  Model model(10, 1000, 1);
  int64_t longest = 0;
  for (int i = 1; i <= 5000; ++i) {
    model.AddRow();
    if (i % 10 == 0) model.AddItem(10);
    longest = std::max(longest, model.length());
  }
  EXPECT_EQ(longest, 10);
}

TEST(ChunkLengthTunerTest, ShortenedChunksDoNotChangeTheLength) {
  ChunkLengthTuner tuner(10, 1.0);
  uint64_t id = 0;
  for (int i = 0; i < 500; ++i) {  // always one row, whatever the tuned length
    tuner.AddChunk(id++, 1, 100);
    tuner.AddItem(1);
  }
  EXPECT_EQ(tuner.length(), 3);
}

TEST(ChunkLengthTunerTest, CollectsRowsUntilItemsAreCreatedAsOftenAsRowsAreAdded) {
  ChunkLengthTuner tuner(10, 1.0);
  EXPECT_TRUE(tuner.collects_rows()) << "there was no item yet";
  const auto add = [&](int64_t rows) {
    tuner.AddRows(rows);
    tuner.AddCreatedItem();
    return tuner.collects_rows();
  };
  EXPECT_TRUE(add(5));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(add(1)) << "an episode begins with more rows than one";
  EXPECT_FALSE(add(1));
  EXPECT_FALSE(add(0)) << "another item of the same rows";
  EXPECT_TRUE(add(2)) << "larger than the length, 1";
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(add(0)) << "does not replace it";
}

TEST(ChunkLengthTunerTest, DoesNotCollectMoreThanTheMaximum) {
  const ChunkLengthTuner tuner(1, 1.0);
  EXPECT_FALSE(tuner.collects_rows());
}

TEST(ChunkLengthTunerTest, SkippedItemsDoNotCount) {
  ChunkLengthTuner tuner(10, 1.0);
  for (uint64_t i = 0; i < 100; ++i) {
    tuner.AddChunk(i, 1, 100);
    tuner.SkipItem();
  }
  EXPECT_EQ(tuner.length(), 1);
  for (uint64_t i = 0; i < 10; ++i) {
    tuner.AddChunk(i, 1, 100);
    tuner.AddItem(1);
  }
  EXPECT_EQ(tuner.length(), 3);
}

}  // namespace
}  // namespace reverb::internal
