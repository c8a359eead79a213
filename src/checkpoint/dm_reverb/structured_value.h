// structured_value.h — the signature of a table as dm-reverb stores it, tensorflow.StructuredValue.
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_
#define REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_

#include <string_view>
#include <vector>

#include "reverb/signature.h"
#include "reverb/status.h"
#include "reverb/tensor.h"

namespace reverb::internal {

// Bounds of leaves have no place in a Signature and are left out. DATA_LOSS for bytes that are no such
// message, UNIMPLEMENTED for a dtype or a kind of value that tables here do not know.
Result<Signature> DecodeStructuredValue(std::string_view message);

// tensorflow.TensorShapeProto. DATA_LOSS when it is damaged.
Result<Shape> DecodeShape(std::string_view message);

// tensorflow.DataType. UNIMPLEMENTED, naming the number, for one that is unknown here.
Result<DType> DecodeDType(uint64_t number);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_STRUCTURED_VALUE_H_
