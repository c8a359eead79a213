// chunks.h — small chunks and items for tests.
#ifndef REVERB_TESTS_TESTING_CHUNKS_H_
#define REVERB_TESTS_TESTING_CHUNKS_H_

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/chunk_store.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"
#include "tensor/item.h"
#include "tensor/trajectory.h"

namespace reverb::test {

using internal::ChunkHeader;
using internal::ChunkRef;
using internal::ChunkStore;
using internal::CodecPolicy;
using internal::ColumnEncoder;
using internal::Item;
using internal::Trajectory;

// Returns a chunk of `rows` rows of one int64 scalar column: first_value, first_value + 1, …
// `Store` is ChunkStore or a class with the same Add().
template <typename Store>
ChunkRef MakeChunk(Store* store, uint64_t episode_id, int64_t first_step, uint32_t rows,
                   int64_t first_value = 0) {
  std::vector<int64_t> values(rows);
  for (uint32_t i = 0; i < rows; ++i) values[i] = first_value + i;
  std::vector<uint8_t> raw(rows * sizeof(int64_t)), payload;
  std::memcpy(raw.data(), values.data(), raw.size());
  ColumnEncoder encoder(DType::kInt64, {}, CodecPolicy::kNone);
  ChunkHeader header{
      .episode_id = episode_id, .first_step = first_step, .last_step = first_step + rows - 1, .rows = rows};
  header.columns.push_back(encoder.Encode(raw, rows, &payload).value());
  return store->Add(header, payload).value();
}

// Returns a chunk of one row with this many zeros, compressed a thousandfold and more.
template <typename Store>
ChunkRef MakeCompressedChunk(Store* store, uint32_t bytes) {
  const std::vector<uint8_t> raw(bytes);
  std::vector<uint8_t> payload;
  ColumnEncoder encoder(DType::kUint8, {bytes}, CodecPolicy::kZstd);
  ChunkHeader header{.episode_id = 1, .rows = 1};
  header.columns.push_back(encoder.Encode(raw, 1, &payload).value());
  return store->Add(header, payload).value();
}

inline Item MakeItem(uint64_t key, double priority, ChunkRef chunk) {
  return {.key = key, .priority = priority, .trajectory = Trajectory::Single(std::move(chunk), 0, 1).value()};
}

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_CHUNKS_H_
