// batcher.h — many samples as one array per column, decoded straight to where they stay.
//
// A column of a batch has the dims [B, T, …], or [B, …] when it is squeezed. All samples of a batch have the
// same layout; with padding, T is that of the longest, and zeros (or empty strings) follow the rows of the
// others.
//
// Threads: free functions; values.
#ifndef REVERB_CLIENT_BATCHER_H_
#define REVERB_CLIENT_BATCHER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "transport/messages.h"

namespace reverb::internal {

// One column of every sample.
struct ColumnLayout {
  DType dtype = DType::kFloat32;
  bool squeeze = false;
  int64_t length = 0;  // rows
  std::vector<uint32_t> row_shape;
  size_t sample_bytes = 0;     // 0 for strings
  size_t sample_elements = 0;  // of all rows

  std::vector<int64_t> Dims(int64_t batch) const;
};

// How samples like the first lie in memory; INVALID_ARGUMENT for what cannot be batched.
Result<std::vector<ColumnLayout>> LayoutOf(const Sample& sample);
// The same with room for the longest of them.
Result<std::vector<ColumnLayout>> PaddedLayoutOf(std::span<const Sample> samples);

// Where a column goes: bytes for B samples, or strings that are appended to.
struct ColumnTarget {
  uint8_t* data = nullptr;
  std::vector<std::string>* strings = nullptr;
  int64_t* lengths = nullptr;  // rows of each sample; given, shorter ones are padded
};

// Decodes all samples. INVALID_ARGUMENT, naming sample, column and the difference, when one has another
// layout; the targets' contents are undefined then.
Status Gather(std::span<const Sample> samples, std::span<const ColumnLayout> layout,
              std::span<const ColumnTarget> targets);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BATCHER_H_
