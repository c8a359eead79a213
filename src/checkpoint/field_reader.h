// field_reader.h — writes and reads the fields of manifests and pages (docs/checkpoint-format.md).
//
// Threads: values and free functions.
#ifndef REVERB_CHECKPOINT_FIELD_READER_H_
#define REVERB_CHECKPOINT_FIELD_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/byte_io.h"

namespace reverb::internal {

inline void PutSigned(std::string* out, int64_t value) { PutVarint(out, ZigZag(value)); }
inline void PutDouble(std::string* out, double value) { PutFixed64(out, std::bit_cast<uint64_t>(value)); }

// A ByteReader with a sticky error, so that many fields are read without checking each.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : reader_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && reader_.remaining() == 0; }
  size_t remaining() const { return ok_ ? reader_.remaining() : 0; }
  uint8_t Byte() {
    uint8_t value = 0;
    ok_ = ok_ && reader_.ReadByte(&value);
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    ok_ = ok_ && reader_.ReadVarint(&value);
    return value;
  }
  uint32_t Varint32() {
    uint32_t value = 0;
    ok_ = ok_ && reader_.ReadVarint32(&value);
    return value;
  }
  int64_t Signed() { return UnZigZag(Varint()); }
  uint64_t Fixed64() {
    uint64_t value = 0;
    ok_ = ok_ && reader_.ReadFixed64(&value);
    return value;
  }
  double Double() { return std::bit_cast<double>(Fixed64()); }
  std::string_view String() {
    std::string_view value;
    ok_ = ok_ && reader_.ReadString(&value);
    return value;
  }
  // Reads the number of elements that follow, each of at least `bytes_each` bytes, and checks that they fit.
  size_t Count(size_t bytes_each) {
    const uint64_t count = Varint();
    if (ok_ && count > reader_.remaining() / bytes_each) ok_ = false;
    return ok_ ? count : 0;
  }

 private:
  ByteReader reader_;
  bool ok_ = true;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_FIELD_READER_H_
