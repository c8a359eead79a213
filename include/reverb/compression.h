// compression.h — how the bytes of a column are stored.
#ifndef REVERB_COMPRESSION_H_
#define REVERB_COMPRESSION_H_

#include <cstdint>

namespace reverb {

// `kAuto` probes the data: it stores data that does not compress as it is and uses LZ4 otherwise, on
// differences between steps where that pays off.
enum class Compression : uint8_t { kAuto, kNone, kLz4, kZstd, kSnappy };

}  // namespace reverb

#endif  // REVERB_COMPRESSION_H_
