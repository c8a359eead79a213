// chunk_data.h — the chunks of dm-reverb, made into ours.
//
// Theirs hold tensors that are compressed as a whole, after taking differences over all rows; ours hold
// blocks that can be read alone. So every tensor is decoded, which checks it, and encoded anew.
// Threads: a converter belongs to one thread at a time.
#ifndef REVERB_CHECKPOINT_DM_REVERB_CHUNK_DATA_H_
#define REVERB_CHECKPOINT_DM_REVERB_CHUNK_DATA_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"

namespace reverb::internal {

// The key of a serialized ChunkData, without a look at its tensors. DATA_LOSS when it is no message.
Result<uint64_t> ChunkKeyOf(std::string_view chunk_data);

class ChunkConverter {
 public:
  explicit ChunkConverter(const DecodeLimits& limits = {}) : limits_(limits) {}

  struct Converted {
    ChunkHeader header;
    std::span<const uint8_t> payload;  // valid until the next call
  };
  // DATA_LOSS for what is damaged, RESOURCE_EXHAUSTED for what exceeds the limits, UNIMPLEMENTED for a
  // dtype that is unknown here.
  Result<Converted> Convert(std::string_view chunk_data);

 private:
  struct TensorProto;
  static Result<TensorProto> Parse(std::string_view message);
  Result<ColumnHeader> AppendColumn(const TensorProto& tensor, bool delta_encoded);

  const DecodeLimits limits_;
  std::vector<uint8_t> raw_;
  std::vector<std::string_view> strings_;
  std::vector<uint8_t> payload_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_CHUNK_DATA_H_
