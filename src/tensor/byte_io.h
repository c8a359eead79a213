// byte_io.h — reading and writing the little-endian integers of our encodings.
//
// Integers are varints (seven bits a byte, lowest first, the top bit says "more follows")
// or fixed-width. The reader accepts only the shortest form of a varint, so that an
// encoding has exactly one spelling. ByteReader borrows its input; it never reads past
// the end: a failed read returns false and leaves the value alone.
// Threads: values.
#ifndef REVERB_TENSOR_BYTE_IO_H_
#define REVERB_TENSOR_BYTE_IO_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace reverb::internal {

// Payloads are the bytes of native integers and floats, and every stored format is
// little-endian: a big-endian port must swap in the codecs first.
static_assert(std::endian::native == std::endian::little);

inline void PutByte(std::string* out, uint8_t value) { out->push_back(static_cast<char>(value)); }

inline void PutVarint(std::string* out, uint64_t value) {
  if (value < 0x80) return PutByte(out, static_cast<uint8_t>(value));
  char bytes[10];
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) bytes[size++] = static_cast<char>(value | 0x80);
  bytes[size++] = static_cast<char>(value);
  out->append(bytes, size);
}

inline void PutFixed64(std::string* out, uint64_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof value);
}

inline void PutString(std::string* out, std::string_view value) {
  PutVarint(out, value.size());
  out->append(value);
}

// Small numbers of either sign become small varints.
constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t UnZigZag(uint64_t value) { return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1)); }

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  [[nodiscard]] bool ReadByte(uint8_t* value) {
    if (remaining() == 0) return false;
    *value = static_cast<uint8_t>(bytes_[position_++]);
    return true;
  }

  [[nodiscard]] bool ReadVarint(uint64_t* value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      if (shift == 63 && byte > 1) return false;  // past 64 bits
      if (shift > 0 && byte == 0) return false;   // not the shortest form
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        *value = result;
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool ReadVarint32(uint32_t* value) {
    uint64_t wide = 0;
    if (!ReadVarint(&wide) || wide > UINT32_MAX) return false;
    *value = static_cast<uint32_t>(wide);
    return true;
  }

  [[nodiscard]] bool ReadFixed64(uint64_t* value) {
    if (remaining() < sizeof *value) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof *value);
    position_ += sizeof *value;
    return true;
  }

  // The result points into the input.
  [[nodiscard]] bool ReadString(std::string_view* value) {
    uint64_t size = 0;
    return ReadVarint(&size) && ReadBytes(size, value);
  }

  // The result points into the input.
  [[nodiscard]] bool ReadBytes(size_t size, std::string_view* value) {
    if (size > remaining()) return false;
    *value = bytes_.substr(position_, size);
    position_ += size;
    return true;
  }

 private:
  const std::string_view bytes_;
  size_t position_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_BYTE_IO_H_
