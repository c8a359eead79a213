#include "tensor/codec.h"

#include <cassert>
#include <string>

#include "tensor/codec_internal.h"

namespace reverb::internal {
namespace {

Status Damaged(Codec codec, size_t stored, size_t raw) {
  return Status::DataLoss("a block of " + std::to_string(stored) + " bytes compressed with " +
                          std::string(CodecName(codec)) + " does not decompress to the " +
                          std::to_string(raw) + " bytes that its header states; the data is damaged")
      .WithDetail(Detail::kCorruptData);
}

}  // namespace

std::string_view CodecName(Codec codec) {
  switch (codec) {
    case Codec::kRaw:
      return "raw";
    case Codec::kLz4:
      return "lz4";
    case Codec::kZstd:
      return "zstd";
    case Codec::kSnappy:
      return "snappy";
  }
  return "unknown";
}

Result<size_t> Compress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out, Effort effort) {
  if (in.empty() || out.empty()) return size_t{0};
  switch (codec) {
    case Codec::kLz4:
      return CompressLz4(in, out, effort);
    case Codec::kZstd:
      return CompressZstd(in, out);
    case Codec::kSnappy:
      return CompressSnappy(in, out);
    case Codec::kRaw:
      break;
  }
  return Status::Internal("codec number " + std::to_string(static_cast<int>(codec)) + " does not compress");
}

Status Decompress(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out) {
  bool ok = false;
  if (!in.empty() && !out.empty()) {
    switch (codec) {
      case Codec::kLz4:
        ok = DecompressLz4(in, out);
        break;
      case Codec::kZstd:
        ok = DecompressZstd(in, out);
        break;
      case Codec::kSnappy:
        ok = DecompressSnappy(in, out);
        break;
      case Codec::kRaw:
        break;
    }
  }
  return ok ? Status::Ok() : Damaged(codec, in.size(), out.size());
}

Status DecompressPrefix(Codec codec, std::span<const uint8_t> in, std::span<uint8_t> out) {
  assert(CanDecompressPrefix(codec));
  if (out.empty()) return Status::Ok();
  if (!in.empty() && codec == Codec::kLz4 && DecompressPrefixLz4(in, out)) return Status::Ok();
  return Damaged(codec, in.size(), out.size());
}

uint64_t MaxRawSize(Codec codec, uint64_t stored_size) {
  switch (codec) {
    case Codec::kRaw:
      return stored_size;
    case Codec::kLz4:
      return stored_size * 255;  // a length byte represents at most 255 bytes
    case Codec::kZstd:
      return stored_size * 43'691;  // a zstd block: a header of three bytes, at most 128 KiB
    case Codec::kSnappy:
      return stored_size * 64;  // a copy element: at least two bytes, copies at most 64
  }
  return 0;
}

}  // namespace reverb::internal
