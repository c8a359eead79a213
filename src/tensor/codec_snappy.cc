#include <snappy.h>

#include <cstring>
#include <limits>

#include "tensor/codec_internal.h"
#include "tensor/scratch.h"

namespace reverb::internal {

Result<size_t> CompressSnappy(std::span<const uint8_t> in, std::span<uint8_t> out) {
  if (in.size() > std::numeric_limits<uint32_t>::max()) return size_t{0};
  // Snappy has no output limit: it requires space for the worst case.
  const size_t worst = snappy::MaxCompressedLength(in.size());
  size_t written = 0;
  if (out.size() >= worst) {
    snappy::RawCompress(Chars(in), in.size(), Chars(out), &written);
    return written;
  }
  const Scratch room(Scratch::kSnappy, worst);
  if (room.data() == nullptr) return Scratch::NoMemory(worst);
  snappy::RawCompress(Chars(in), in.size(), reinterpret_cast<char*>(room.data()), &written);
  if (written > out.size()) return size_t{0};
  std::memcpy(out.data(), room.data(), written);
  return written;
}

bool DecompressSnappy(std::span<const uint8_t> in, std::span<uint8_t> out) {
  size_t size = 0;
  return snappy::GetUncompressedLength(Chars(in), in.size(), &size) && size == out.size() &&
         snappy::RawUncompress(Chars(in), in.size(), Chars(out));
}

}  // namespace reverb::internal
