// chunk_data.h — converts the chunks of dm-reverb.
//
// Theirs hold tensors that are delta-encoded over all rows and compressed as a whole; ours hold blocks that
// can be read separately. So every tensor is decoded, which validates it, and encoded again. Threads: a
// converter belongs to one thread at a time.
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

// Returns the key of a serialized ChunkData without parsing its tensors; DATA_LOSS when it is not a message.
Result<uint64_t> ChunkKeyOf(std::string_view chunk_data);

class ChunkConverter {
 public:
  explicit ChunkConverter(const DecodeLimits& limits = {}) : limits_(limits) {}

  struct Converted {
    ChunkHeader header;
    std::span<const uint8_t> payload;  // valid until the next call
  };
  // Returns DATA_LOSS for damaged data, RESOURCE_EXHAUSTED for data beyond the limits, UNIMPLEMENTED for an
  // unknown dtype.
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
