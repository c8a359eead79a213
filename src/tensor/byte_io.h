// byte_io.h — reads and writes the little-endian integers of our encodings and of protobuf.
//
// Integers are varints (seven bits per byte, lowest bits first, the top bit set in all bytes but the last) or
// fixed-width. ByteReader accepts only the shortest form of a varint, so that every value has exactly one
// encoding; protobuf messages (proto_reader.h) accept any form. ByteReader borrows its input and never reads
// past the end: a failed read returns false and leaves the value unchanged. Threads: values.
#ifndef REVERB_TENSOR_BYTE_IO_H_
#define REVERB_TENSOR_BYTE_IO_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace reverb::internal {

// Payloads are the bytes of native integers and floats, and every stored format is little-endian: a port to a
// big-endian machine must swap bytes in the codecs first.
static_assert(std::endian::native == std::endian::little);

inline void PutByte(std::string* out, uint8_t value) { out->push_back(static_cast<char>(value)); }

inline constexpr size_t kMaxVarintBytes = 10;

// Returns the length of the shortest form of `value`.
constexpr size_t VarintSize(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Writes the shortest form of `value` to `out`, VarintSize(value) bytes, and returns the position after it.
inline char* WriteVarint(char* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}

inline void PutVarint(std::string* out, uint64_t value) {
  if (value < 0x80) return PutByte(out, static_cast<uint8_t>(value));
  char bytes[kMaxVarintBytes];
  out->append(bytes, static_cast<size_t>(WriteVarint(bytes, value) - bytes));
}

// Decodes a varint in any form, as protobuf defines it. `next(uint8_t*)` stores the next byte of the input,
// or returns false at its end. Returns the number of bytes; 0 when the input ends inside the varint; -1 when
// the value has more than 64 bits. `*value` is set on success only.
template <typename NextByte>
int DecodeVarint(NextByte&& next, uint64_t* value) {
  uint64_t result = 0;
  for (int i = 0; i < static_cast<int>(kMaxVarintBytes); ++i) {
    uint8_t byte = 0;
    if (!next(&byte)) return 0;
    if (i == static_cast<int>(kMaxVarintBytes) - 1 && byte > 1) break;
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *value = result;
      return i + 1;
    }
  }
  return -1;
}

inline void PutFixed32(std::string* out, uint32_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof value);
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

// Maps small numbers of either sign to small varints.
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
    const int size = DecodeVarint([this](uint8_t* byte) { return ReadByte(byte); }, &result);
    if (size <= 0 || (size > 1 && static_cast<size_t>(size) != VarintSize(result))) return false;
    *value = result;
    return true;
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

  // Sets `*value` to a view of the input.
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
