// structured_value.h — signatures as tensorflow.StructuredValue, the message in which dm-reverb keeps them.
//
// Used to read dm-reverb's checkpoints and for Python programs that use dm-reverb's messages. Needs neither
// TensorFlow nor protobuf. Threads: free functions without state.
#ifndef REVERB_STRUCTURED_VALUE_H_
#define REVERB_STRUCTURED_VALUE_H_

#include <string>
#include <string_view>

#include "reverb/signature.h"
#include "reverb/status.h"

namespace reverb {

// Returns the bytes of the message; equal signatures give equal bytes.
std::string EncodeStructuredValue(const Signature& signature);

// DATA_LOSS for bytes that are not such a message, UNIMPLEMENTED for a dtype or a kind of value that
// signatures do not have. Safe for untrusted bytes: bounds take at most 16 MiB of memory, all together.
Result<Signature> DecodeStructuredValue(std::string_view message);

}  // namespace reverb

#endif  // REVERB_STRUCTURED_VALUE_H_
