// batcher.h — combines many samples into one array per column, decoding them directly into place.
//
// A column of a batch has the dims [B, T, …], or [B, …] if it is squeezed. All samples of a batch have the
// same layout. With padding, T is that of the longest sample, and zeros (or empty strings) follow the rows of
// the others.
//
// Threads: functions without state; values.
#ifndef REVERB_CLIENT_BATCHER_H_
#define REVERB_CLIENT_BATCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "transport/messages.h"

namespace reverb::internal {

// The layout of one column of every sample.
struct ColumnLayout {
  DType dtype = DType::kFloat32;
  bool squeeze = false;
  int64_t length = 0;  // rows
  std::vector<uint32_t> row_shape;
  size_t sample_bytes = 0;     // 0 for strings
  size_t sample_elements = 0;  // of all rows

  std::vector<int64_t> Dims(int64_t batch) const;
};

// Returns the layout of a batch of samples like this one; INVALID_ARGUMENT if it cannot be batched.
Result<std::vector<ColumnLayout>> LayoutOf(const Sample& sample);
// Same, with space for the longest sample.
Result<std::vector<ColumnLayout>> PaddedLayoutOf(std::span<const Sample> samples);

// Returns how many samples, starting with the first, have the layout of the first; with `pad` their lengths may
// differ. REQUIRES: at least one sample.
size_t NumWithSameLayout(std::span<const Sample> samples, bool pad);

// The destination of a column: bytes for B samples, or strings that are appended to.
struct ColumnTarget {
  uint8_t* data = nullptr;
  std::vector<std::string>* strings = nullptr;
  int64_t* lengths = nullptr;  // rows of each sample; if set, shorter samples are padded
};

// Returns the paths of the columns for error messages; empty if unknown.
using ColumnNamer = std::function<std::vector<std::string>()>;

// Decodes all samples. Returns INVALID_ARGUMENT, naming sample, column and the difference, if one has another
// layout; the contents of the targets are undefined then.
Status Gather(std::span<const Sample> samples, std::span<const ColumnLayout> layout,
              std::span<const ColumnTarget> targets, const ColumnNamer& names = {});

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BATCHER_H_
