// wire_reader.h — reads protobuf messages that lie in many slices.
//
// A cursor over borrowed slices of bytes, as they come from the network: values may cross the borders of
// slices; nothing is put together beforehand. Every length is checked against what is there. Nothing
// throws, and the only memory taken is that of the strings asked for.
//
//   WireReader reader(slices);
//   while (reader.Next()) {
//     switch (reader.field()) {
//       case 1: reader.Read(&version); break;
//       case 2: Parse(reader.ReadMessage(), &limits); break;
//     }                                   // what was not read is skipped: fields of newer peers
//   }
//   return reader.status("Welcome");
//
// The first error ends the reading: Next() says false from there on, and status() tells. A known field of
// another wire type than expected is an error.
//
// Ownership: borrows the slices and their bytes. Threads: values.
#ifndef REVERB_TRANSPORT_WIRE_READER_H_
#define REVERB_TRANSPORT_WIRE_READER_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "tensor/byte_io.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

using ByteSlice = std::span<const uint8_t>;
using ByteSlices = std::span<const ByteSlice>;

class WireReader {
 public:
  WireReader() = default;  // of an empty message
  explicit WireReader(ByteSlices slices);

  // Goes to the next field, past what was left of the present one. False at the end, and after an error.
  [[nodiscard]] bool Next();
  uint32_t field() const { return field_; }

  // The value of the present field; to be called once at most. After an error values are left alone.
  void Read(uint64_t* value);
  void Read(uint32_t* value);  // an error when the number does not fit
  void Read(bool* value);
  void Read(double* value);
  void ReadCount(int64_t* value);  // uint64 that must fit into an int64_t
  void ReadCount(int32_t* value);  // uint32 that must fit into an int32_t
  void ReadInt(int32_t* value);    // int32
  void ReadSint(int64_t* value);
  void ReadFixed(uint64_t* value);
  // RESOURCE_EXHAUSTED in status() when it is longer than `max_bytes`.
  void Read(std::string* value, size_t max_bytes);
  // None at all, or exactly sixteen bytes.
  void Read(std::array<uint8_t, 16>* value);
  // The bytes of a nested message or of a `bytes` field, as a reader of their own.
  [[nodiscard]] WireReader ReadMessage();

  // Repeated numbers, packed or one by one: calls add(uint64_t) for each.
  template <typename F>
  void ReadVarints(F&& add) {
    if (type_ != WireType::kBytes) {
      uint64_t value = 0;
      Read(&value);
      if (error_ == nullptr) add(value);
      return;
    }
    WireReader packed = ReadMessage();
    while (error_ == nullptr && packed.remaining() > 0) {
      uint64_t value = 0;
      if (packed.Varint(&value)) {
        add(value);
      } else {
        Fail(packed.error_);
      }
    }
  }
  template <typename F>
  void ReadFixed64s(F&& add) {
    if (type_ != WireType::kBytes) {
      uint64_t value = 0;
      ReadFixed(&value);
      if (error_ == nullptr) add(value);
      return;
    }
    WireReader packed = ReadMessage();
    while (error_ == nullptr && packed.remaining() > 0) {
      uint64_t value = 0;
      if (packed.Fixed64(&value)) {
        add(value);
      } else {
        Fail(packed.error_);
      }
    }
  }

  // Bytes from here to the end of this message.
  size_t remaining() const { return static_cast<size_t>(end_ - here_) + rest_; }
  // Copies them all to `out`, and is at the end then.
  void CopyRest(uint8_t* out);
  // The same bytes where they lie.
  std::vector<ByteSlice> RestInParts() const;

  bool ok() const { return error_ == nullptr; }
  // DATA_LOSS, or RESOURCE_EXHAUSTED for a value beyond a limit, naming message and field.
  Status status(std::string_view message) const;

 private:
  static constexpr const char* kCutShort = "is cut short";

  bool Refill();
  [[nodiscard]] bool Varint(uint64_t* value);
  [[nodiscard]] bool SlowVarint(uint64_t* value);
  [[nodiscard]] bool Fixed64(uint64_t* value);
  // Past the value of the present field.
  [[nodiscard]] bool Skip();
  [[nodiscard]] bool BadTag(uint64_t tag);
  // All are REQUIRED to stay within remaining().
  void CopyOut(uint8_t* out, size_t size);
  void Advance(size_t size);
  WireReader Sub(size_t size) const;

  bool Expect(WireType type) {
    unread_ = false;
    if (error_ == nullptr && type_ != type) Fail("has another wire type than this protocol gives it");
    return error_ == nullptr;
  }
  // `error` lives for ever.
  bool Fail(const char* error, bool too_large = false) {
    if (error_ == nullptr) {
      error_ = error;
      too_large_ = too_large;
    }
    return false;
  }

  const ByteSlice* slice_ = nullptr;  // the present one
  const uint8_t* here_ = nullptr;
  const uint8_t* end_ = nullptr;  // of the present slice, or of this message if that comes first
  size_t rest_ = 0;               // bytes of this message in slices after the present one
  const char* error_ = nullptr;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  bool unread_ = false;  // the present field's value is still ahead
  bool too_large_ = false;
};

// --- What is done for every field of every message ---

inline bool WireReader::Varint(uint64_t* value) {
  if (here_ != end_ && *here_ < 0x80) [[likely]] {
    *value = *here_++;
    return true;
  }
  if (end_ - here_ >= 2 && here_[1] < 0x80) {
    *value = (here_[0] & 0x7fU) | static_cast<uint64_t>(here_[1]) << 7;
    here_ += 2;
    return true;
  }
  return SlowVarint(value);
}

inline bool WireReader::Fixed64(uint64_t* value) {
  if (static_cast<size_t>(end_ - here_) >= sizeof *value) [[likely]] {
    std::memcpy(value, here_, sizeof *value);
    here_ += sizeof *value;
    return true;
  }
  if (remaining() < sizeof *value) return Fail(kCutShort);
  CopyOut(reinterpret_cast<uint8_t*>(value), sizeof *value);
  return true;
}

inline bool WireReader::Next() {
  if (error_ != nullptr || (unread_ && !Skip())) return false;
  if (remaining() == 0) return false;
  uint64_t tag = 0;
  field_ = 0;
  if (!Varint(&tag)) return false;
  const auto type = static_cast<uint8_t>(tag & 7);
  if (tag > UINT32_MAX || tag >> 3 == 0 || type == 3 || type == 4 || type > 5) [[unlikely]] {
    return BadTag(tag);
  }
  field_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<WireType>(type);
  unread_ = true;
  return true;
}

inline WireReader WireReader::Sub(size_t size) const {
  WireReader sub;
  sub.slice_ = slice_;
  sub.here_ = here_;
  const auto present = static_cast<size_t>(end_ - here_);
  const size_t first = size < present ? size : present;
  sub.end_ = here_ + first;
  sub.rest_ = size - first;
  return sub;
}

inline WireReader WireReader::ReadMessage() {
  uint64_t size = 0;
  if (!Expect(WireType::kBytes) || !Varint(&size)) return {};
  if (size > remaining()) {
    Fail(kCutShort);
    return {};
  }
  WireReader sub = Sub(size);
  if (sub.rest_ == 0) [[likely]] {
    here_ += size;
  } else {
    Advance(size);
  }
  return sub;
}

inline void WireReader::Read(uint64_t* value) {
  if (Expect(WireType::kVarint)) (void)Varint(value);
}

inline void WireReader::ReadSint(int64_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (ok()) *value = UnZigZag(wide);
}

inline void WireReader::ReadFixed(uint64_t* value) {
  if (Expect(WireType::kFixed64)) (void)Fixed64(value);
}

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_READER_H_
