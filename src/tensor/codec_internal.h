// codec_internal.h — functions that codec_*.cc provide to codec.cc. Their contracts are those of codec.h; the
// output of Decompress is never empty.
#ifndef REVERB_TENSOR_CODEC_INTERNAL_H_
#define REVERB_TENSOR_CODEC_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "reverb/status.h"
#include "tensor/codec.h"

namespace reverb::internal {

// Bytes as the libraries take them.
inline const char* Chars(std::span<const uint8_t> bytes) {
  return reinterpret_cast<const char*>(bytes.data());
}
inline char* Chars(std::span<uint8_t> bytes) { return reinterpret_cast<char*>(bytes.data()); }

Result<size_t> CompressLz4(std::span<const uint8_t> in, std::span<uint8_t> out, Effort effort);
bool DecompressLz4(std::span<const uint8_t> in, std::span<uint8_t> out);
bool DecompressPrefixLz4(std::span<const uint8_t> in, std::span<uint8_t> out);

Result<size_t> CompressZstd(std::span<const uint8_t> in, std::span<uint8_t> out);
bool DecompressZstd(std::span<const uint8_t> in, std::span<uint8_t> out);

Result<size_t> CompressSnappy(std::span<const uint8_t> in, std::span<uint8_t> out);
bool DecompressSnappy(std::span<const uint8_t> in, std::span<uint8_t> out);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CODEC_INTERNAL_H_
