// rows.h — rows for tests.
#ifndef REVERB_TESTS_TESTING_ROWS_H_
#define REVERB_TESTS_TESTING_ROWS_H_

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tensor/row.h"

namespace reverb::test {

// Returns the chunk of a row with one int64 column for each length: 0, 1, 2, …; a scalar for length -1.
inline internal::ChunkRef RowChunk(const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return {};
  std::vector<std::vector<int64_t>> data;
  for (const int64_t length : lengths) {
    std::vector<int64_t>& column = data.emplace_back(length < 0 ? 1 : length);
    std::iota(column.begin(), column.end(), 0);
  }
  std::vector<TensorView> values;
  for (size_t i = 0; i < lengths.size(); ++i) {
    values.push_back({DType::kInt64, std::span(&lengths[i], lengths[i] < 0 ? 0 : 1), data[i].data()});
  }
  return internal::EncodeRow(values).value();
}

inline internal::RowWrite MakeRow(std::string key, const std::vector<int64_t>& lengths,
                                  std::string group = "", std::vector<RowTag> tags = {}) {
  return {
      .key = std::move(key), .group = std::move(group), .tags = std::move(tags), .chunk = RowChunk(lengths)};
}

inline std::vector<std::string> KeysOf(const std::vector<internal::RowRecord>& rows) {
  std::vector<std::string> keys;
  for (const internal::RowRecord& row : rows) keys.push_back(row.key);
  return keys;
}

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_ROWS_H_
