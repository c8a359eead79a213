// chunk_length_tuner.h — finds by trial how many rows a chunk should have.
//
// Looks at what goes out: of each item the chunks that it makes travel, of each chunk its bytes for a
// row. Ten items and five chunks make a score; the length moves by +2 or -1 towards the lower cost.
// Long chunks win where rows compress together and items cover chunks whole; short ones where items
// take single rows out of chunks.
//
// Threads: one at a time. No memory of its own beyond the object.
#ifndef REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_
#define REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_

#include <array>
#include <cstdint>
#include <optional>

namespace reverb::internal {

class ChunkLengthTuner {
 public:
  // Lengths are in [1, max_length]. REQUIRES: max_length >= 1.
  ChunkLengthTuner(int64_t max_length, double throughput_weight)
      : max_length_(max_length), throughput_weight_(throughput_weight) {}

  int64_t length() const { return length_; }

  // A chunk of an item that is about to be sent: once for each distinct chunk of the item.
  void AddChunk(uint64_t chunk_id, int64_t rows, int64_t bytes);
  // Then the item: how many rows of these chunks it refers to.
  // REQUIRES: AddChunk() was called since the last one, references >= 1.
  void AddItem(int64_t references);

 private:
  static constexpr size_t kItems = 10;
  static constexpr size_t kChunks = 5;

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

  void Judge(const Score& score);

  int64_t max_length_;
  double throughput_weight_;
  int64_t length_ = 1;
  std::optional<Score> last_;

  // The newest ones, as rings: entry n lies at n modulo the size.
  std::array<ItemStat, kItems> items_;
  std::array<ChunkStat, kChunks> chunks_;
  size_t num_items_ = 0;
  size_t num_chunks_ = 0;

  // Of the item under way.
  int64_t item_chunks_ = 0;
  int64_t item_rows_ = 0;
  int64_t item_bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_CHUNK_LENGTH_TUNER_H_
