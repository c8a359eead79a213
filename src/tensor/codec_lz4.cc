#include <lz4.h>

#include <algorithm>
#include <climits>
#include <memory>

#include "tensor/codec_internal.h"

namespace reverb::internal {
namespace {

struct FreeStream {
  void operator()(LZ4_stream_t* stream) const { LZ4_freeStream(stream); }
};

// Returns this thread's compressor state, reset for an independent block. LZ4_compress_fast would clear the
// whole state for each block, which dominates the cost of small blocks. Null if no memory is left.
LZ4_stream_t* FreshStream() {
  thread_local const std::unique_ptr<LZ4_stream_t, FreeStream> stream(LZ4_createStream());
  if (stream) LZ4_resetStream_fast(stream.get());
  return stream.get();
}

}  // namespace

Result<size_t> CompressLz4(std::span<const uint8_t> in, std::span<uint8_t> out, Effort effort) {
  if (in.size() > LZ4_MAX_INPUT_SIZE) return size_t{0};
  const int acceleration = effort == Effort::kProbe ? 4 : 1;
  const int capacity = static_cast<int>(std::min<size_t>(out.size(), INT_MAX));
  LZ4_stream_t* const stream = FreshStream();
  if (stream == nullptr) return size_t{0};  // stores the block uncompressed
  const int written = LZ4_compress_fast_continue(stream, Chars(in), Chars(out), static_cast<int>(in.size()),
                                                 capacity, acceleration);
  return static_cast<size_t>(std::max(written, 0));
}

bool DecompressLz4(std::span<const uint8_t> in, std::span<uint8_t> out) {
  if (in.size() > INT_MAX || out.size() > INT_MAX) return false;
  const int size = static_cast<int>(out.size());
  return LZ4_decompress_safe(Chars(in), Chars(out), static_cast<int>(in.size()), size) == size;
}

bool DecompressPrefixLz4(std::span<const uint8_t> in, std::span<uint8_t> out) {
  if (in.size() > INT_MAX || out.size() > INT_MAX) return false;
  const int size = static_cast<int>(out.size());
  return LZ4_decompress_safe_partial(Chars(in), Chars(out), static_cast<int>(in.size()), size, size) == size;
}

}  // namespace reverb::internal
