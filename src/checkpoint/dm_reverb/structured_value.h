// structured_value.h — parts of TensorFlow's messages, which chunks and signatures of dm-reverb consist of.
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_
#define REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_

#include <cstdint>
#include <string_view>

#include "reverb/status.h"
#include "reverb/structured_value.h"
#include "reverb/tensor.h"

namespace reverb::internal {

// Decodes tensorflow.TensorShapeProto. DATA_LOSS when it is damaged.
Result<Shape> DecodeShape(std::string_view message);

// Decodes tensorflow.DataType. UNIMPLEMENTED, naming the number, for one that is not supported.
Result<DType> DecodeDType(uint64_t number);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_
