// codec.h — compression and decompression of one block of bytes.
//
// Only codec_*.cc include the compression libraries. The functions keep the libraries' contexts per thread
// and have no other state.
// Threads: all functions may be called concurrently.
// Safe for malicious input: decompression only reads and writes within the given spans, and fails unless it
// fills the output exactly.
#ifndef REVERB_TENSOR_CODEC_H_
#define REVERB_TENSOR_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "reverb/status.h"

namespace reverb::internal {

// stored and sent: never change the values
enum class Codec : uint8_t { kRaw = 0, kLz4 = 1, kZstd = 2, kSnappy = 3 };

// The codecs that a column's encoder may choose from.
enum class CodecPolicy : uint8_t {
  kAuto,  // LZ4, with delta for integers, each only if a probe shows a benefit
  kNone,
  kLz4,
  kZstd,  // level 1: dense, at about two thirds of LZ4's speed
  kSnappy,
};

constexpr bool IsKnownCodec(uint8_t number) { return number <= static_cast<uint8_t>(Codec::kSnappy); }
std::string_view CodecName(Codec codec);

enum class Effort : uint8_t {
  kNormal,
  kProbe,  // a quick estimate of the size, if the codec supports it
};

// Compresses `in` into `out`. Returns the compressed size, or 0 if the result does not fit: pass a smaller
// `out` to require a minimum saving.
// REQUIRES: codec is not kRaw.
Result<size_t> Compress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out,
                        Effort effort = Effort::kNormal);

// Fills `out` exactly from all of `in`, or returns DATA_LOSS.
// REQUIRES: codec is not kRaw.
Status Decompress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out);

// Fills `out` with the first out.size() decompressed bytes of `in`, without decoding the rest. REQUIRES:
// CanDecompressPrefix(codec).
Status DecompressPrefix(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out);
constexpr bool CanDecompressPrefix(Codec codec) { return codec == Codec::kLz4; }

// Returns the maximum decompressed size of `stored_size` bytes. Callers reject a small block that claims to
// be huge before they allocate memory for it.
uint64_t MaxRawSize(Codec codec, uint64_t stored_size);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CODEC_H_
