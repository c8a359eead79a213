// chunk_length_tuner.h — decides how many rows a chunk gets.
//
// Two questions. May rows be collected until an item needs them? They may, unless items are created about as
// often as rows are added: the tuner compares length() with the number of rows between recent items. Rows that
// are collected become one chunk when an item is created, so that an item of many new rows needs one chunk.
//
// How many rows should an item wait for? length(), found by trial. The tuner measures what is sent: the chunks
// that each item requires, and the bytes per row of each chunk. Ten items and five chunks yield a score; the
// length changes by +2 or -1 towards the lower cost. Long chunks win if rows compress well together and items
// cover whole chunks; short ones win if items use single rows of chunks.
//
// Threads: one at a time. Allocates no memory.
#ifndef REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_
#define REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace reverb::internal {

class ChunkLengthTuner {
 public:
  // Lengths are in [1, max_length]. REQUIRES: max_length >= 1.
  ChunkLengthTuner(int64_t max_length, double throughput_weight)
      : max_length_(max_length), throughput_weight_(throughput_weight) {}

  int64_t length() const { return length_; }
  int64_t max_length() const { return max_length_; }

  // Returns whether rows should be added to a chunk beyond length() until an item needs them.
  bool collects_rows() const { return max_stride_ > length_ && length_ < max_length_; }
  // Counts rows, and the creation of an item that contains rows of these columns. Further calls for one item have
  // no effect.
  void AddRows(int64_t rows) { rows_since_item_ += rows; }
  void AddCreatedItem();

  // Adds a chunk of an item that is about to be sent: once for each distinct chunk of the item.
  void AddChunk(uint64_t chunk_id, int64_t rows, int64_t bytes);
  // Adds the item: the number of rows of these chunks that it refers to.
  // REQUIRES: AddChunk() was called since the last call; references >= 1.
  void AddItem(int64_t references);
  // Ignores the item instead: it also has chunks of collected rows, which say nothing about length().
  void SkipItem() { item_chunks_ = item_rows_ = item_bytes_ = 0; }

 private:
  static constexpr size_t kItems = 10;
  static constexpr size_t kChunks = 5;
  static constexpr size_t kStrides = 4;

  struct ItemStat {
    double rows_per_chunk = 0;
    double bytes_per_step = 0;
  };
  struct ChunkStat {
    uint64_t id = 0;
    double rows = 0;
    double bytes_per_step = 0;
  };
  struct Score {
    double rows = 0;
    double cost = 0;
  };

  void Adjust(const Score& score);

  int64_t max_length_;
  double throughput_weight_;
  int64_t length_ = 1;
  std::optional<Score> last_;

  // The numbers of rows between items, in a ring buffer like the ones below.
  std::array<int64_t, kStrides> strides_ = {};
  size_t num_strides_ = 0;
  int64_t max_stride_ = std::numeric_limits<int64_t>::max();  // no item was created yet
  int64_t rows_since_item_ = 0;

  // The newest ones, in ring buffers: entry n is at index n modulo the size.
  std::array<ItemStat, kItems> items_;
  std::array<ChunkStat, kChunks> chunks_;
  size_t num_items_ = 0;
  size_t num_chunks_ = 0;

  // Totals of the current item.
  int64_t item_chunks_ = 0;
  int64_t item_rows_ = 0;
  int64_t item_bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_
