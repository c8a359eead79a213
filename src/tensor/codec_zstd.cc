#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <string>

#include "tensor/codec_internal.h"

namespace reverb::internal {
namespace {

constexpr int kLevel = 1;  // level 3 saves at most a tenth more, at half the speed

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

Result<size_t> CompressZstd(std::span<const uint8_t> in, std::span<uint8_t> out) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (context == nullptr) return Status::ResourceExhausted("no memory for a zstd compression context");
  const size_t written =
      ZSTD_compressCCtx(context.get(), out.data(), out.size(), in.data(), in.size(), kLevel);
  if (ZSTD_isError(written) == 0) return written;
  if (ZSTD_getErrorCode(written) == ZSTD_error_dstSize_tooSmall) return size_t{0};
  return Status::Internal("zstd could not compress " + std::to_string(in.size()) +
                          " bytes: " + ZSTD_getErrorName(written));
}

bool DecompressZstd(std::span<const uint8_t> in, std::span<uint8_t> out) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (context == nullptr) return false;
  const size_t written = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(written) == 0 && written == out.size();
}

}  // namespace reverb::internal
