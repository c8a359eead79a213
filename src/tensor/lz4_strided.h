// lz4_strided.h — compresses arrays into the LZ4 block format, using their strides.
//
// LZ4's own compressor looks up one earlier position with the same four bytes, usually the nearest, and
// accepts what it finds. In an array the best match is often at a known distance: the same column of the
// previous line, or the same element of the previous row. This compressor also compares those, and the
// distance of the last match, and takes the longest match. Frames of a game become a third smaller in the
// same time, and decode faster because they consist of fewer matches. Any LZ4 decoder reads the result.
//
// Threads: a function without state.
#ifndef REVERB_TENSOR_LZ4_STRIDED_H_
#define REVERB_TENSOR_LZ4_STRIDED_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverb::internal {

// The largest input of CompressLz4Strided().
inline constexpr size_t kMaxStridedBytes = size_t{64} << 10;

// Compresses `in` into `out`. `strides` are distances in bytes, each at least 1, at which the input is likely
// to repeat. Returns the compressed size, or 0 if the result does not fit or the input is too large.
size_t CompressLz4Strided(std::span<const uint8_t> in, std::span<const uint32_t> strides,
                          std::span<uint8_t> out);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_LZ4_STRIDED_H_
