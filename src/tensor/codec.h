// codec.h — compressing and decompressing one block of bytes.
//
// Each library is seen by its own codec_*.cc alone. Functions keep the library's contexts
// per thread and have no other state.
// Threads: all functions may be called concurrently.
// Safe for hostile input: decompression reads and writes inside the given spans only, and
// fails unless it fills the output exactly.
#ifndef REVERB_TENSOR_CODEC_H_
#define REVERB_TENSOR_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "reverb/status.h"

namespace reverb::internal {

enum class Codec : uint8_t { kRaw = 0, kLz4 = 1, kZstd = 2, kSnappy = 3 };  // on disk and wire

// What a column's encoder may choose from.
enum class CodecPolicy : uint8_t {
  kAuto,  // LZ4, with delta for integers, each where a probe says that it pays
  kNone,
  kLz4,
  kZstd,  // level 1: dense, at about two thirds of LZ4's speed
  kSnappy,
};

constexpr bool IsKnownCodec(uint8_t number) { return number <= static_cast<uint8_t>(Codec::kSnappy); }
std::string_view CodecName(Codec codec);

enum class Effort : uint8_t {
  kNormal,
  kProbe,  // a quick estimate of the size, where the codec has such a gear
};

// Compresses `in` into `out` and returns the compressed size, or 0 when the result would
// not fit: a smaller `out` says "do not bother unless it gets this small".
// REQUIRES: codec is not kRaw.
Result<size_t> Compress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out,
                        Effort effort = Effort::kNormal);

// Fills `out` exactly from the whole of `in`, or returns DATA_LOSS.
// REQUIRES: codec is not kRaw.
Status Decompress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out);

// Fills `out` with the first out.size() bytes of what `in` decompresses to, without
// decoding the rest. REQUIRES: CanDecompressPrefix(codec).
Status DecompressPrefix(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out);
constexpr bool CanDecompressPrefix(Codec codec) { return codec == Codec::kLz4; }

// No input of `stored_size` bytes decompresses to more than this, so that a small block
// that claims to be huge is refused before memory is set aside for it.
uint64_t MaxRawSize(Codec codec, uint64_t stored_size);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CODEC_H_
