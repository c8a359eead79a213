#include "client/chunk_length_tuner.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace reverb::internal {

void ChunkLengthTuner::AddCreatedItem() {
  if (rows_since_item_ == 0) return;  // several items of the same rows
  strides_[num_strides_++ % kStrides] = rows_since_item_;
  rows_since_item_ = 0;
  max_stride_ = *std::max_element(strides_.begin(), strides_.end());
}

void ChunkLengthTuner::AddChunk(uint64_t chunk_id, int64_t rows, int64_t bytes) {
  ++item_chunks_;
  item_rows_ += rows;
  item_bytes_ += bytes;
  for (size_t i = 0; i < std::min(num_chunks_, kChunks); ++i) {
    if (chunks_[i].id == chunk_id) return;
  }
  chunks_[num_chunks_++ % kChunks] = {
      .id = chunk_id,
      .rows = static_cast<double>(rows),
      .bytes_per_step = static_cast<double>(bytes) / static_cast<double>(rows)};
}

void ChunkLengthTuner::AddItem(int64_t references) {
  assert(item_chunks_ > 0 && references > 0);
  items_[num_items_++ % kItems] = {
      .rows_per_chunk = static_cast<double>(item_rows_) / static_cast<double>(item_chunks_),
      .bytes_per_step = static_cast<double>(item_bytes_) / static_cast<double>(references)};
  item_chunks_ = item_rows_ = item_bytes_ = 0;
  if (num_items_ < kItems || num_chunks_ < kChunks) return;

  Score score;
  double item_bytes = 0;
  double chunk_bytes = 0;
  for (const ItemStat& item : items_) {
    score.rows += item.rows_per_chunk;
    item_bytes += item.bytes_per_step;
  }
  for (const ChunkStat& chunk : chunks_) {
    score.rows += chunk.rows;
    chunk_bytes += chunk.bytes_per_step;
  }
  score.rows /= kItems + kChunks;
  score.cost = chunk_bytes / kChunks + throughput_weight_ * item_bytes / kItems;
  num_items_ = num_chunks_ = 0;
  Adjust(score);
}

void ChunkLengthTuner::Adjust(const Score& score) {
  // Ignores chunks that were cut short by a flush, or started with another length.
  constexpr double kTolerance = 0.25;
  constexpr int64_t kUp = 2;
  constexpr int64_t kDown = -1;
  int64_t step = kUp;
  if (last_) {
    if (std::abs(score.rows - static_cast<double>(length_)) > kTolerance) return;
    step = (score.cost < last_->cost) == (score.rows > last_->rows) ? kUp : kDown;
  }
  const int64_t before = length_;
  length_ = std::clamp<int64_t>(length_ + step, 1, max_length_);
  if (!last_ || length_ != before) last_ = score;
}

}  // namespace reverb::internal
