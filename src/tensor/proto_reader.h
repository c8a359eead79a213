// proto_reader.h — reads protobuf messages, in one piece or in many slices.
//
// A cursor over borrowed bytes. Values may cross the borders of slices; nothing is joined beforehand. Every
// length is checked against the bytes that are present. Nothing throws, and the only memory allocated is that
// of the strings read.
//
//   ProtoReader reader(slices);
//   while (reader.Next()) {
//     switch (reader.field()) {
//       case 1: reader.Read(&version); break;
//       case 2: Parse(reader.ReadMessage(), &limits); break;
//     }                                   // unread fields, e.g. of newer peers, are skipped
//   }
//   return reader.status("Welcome");
//
// The first error ends the reading: Next() returns false from then on, and status() returns the error. A
// known field of another wire type than expected is an error.
//
// Lies in src/tensor, the lowest folder with encodings, because both the transport's messages and the
// checkpoints of dm-reverb are protobuf. The writer is in transport/wire_writer.h: only messages are written,
// and its buffers are laid out for sending.
//
// Ownership: borrows the slices and their bytes. Threads: values.
#ifndef REVERB_TENSOR_PROTO_READER_H_
#define REVERB_TENSOR_PROTO_READER_H_

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

namespace reverb::internal {

using ByteSlice = std::span<const uint8_t>;
using ByteSlices = std::span<const ByteSlice>;

enum class ProtoType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };  // protobuf's numbers

class ProtoReader {
 public:
  ProtoReader() = default;  // reads an empty message
  explicit ProtoReader(ByteSlices slices);
  // Reads a message in one piece.
  explicit ProtoReader(std::string_view message)
      : here_(reinterpret_cast<const uint8_t*>(message.data())), end_(here_ + message.size()) {}

  // Moves to the next field, skipping the current value if it was not read. Returns false at the end and
  // after an error.
  [[nodiscard]] bool Next();
  uint32_t field() const { return field_; }

  // Read the value of the current field; call one of them at most once per field. An error leaves the value
  // unchanged.
  void Read(uint64_t* value);
  void Read(uint32_t* value);  // fails when the number does not fit
  void Read(bool* value);
  void Read(double* value);
  void ReadCount(int64_t* value);  // uint64 that must fit into an int64_t
  void ReadCount(int32_t* value);  // uint32 that must fit into an int32_t
  void ReadInt(int32_t* value);    // int32
  void ReadInt(int64_t* value);    // int64
  void ReadSint(int64_t* value);
  void ReadFixed(uint64_t* value);
  // RESOURCE_EXHAUSTED in status() when it is longer than `max_bytes`.
  void Read(std::string* value, size_t max_bytes);
  // Accepts no bytes, or exactly sixteen.
  void Read(std::array<uint8_t, 16>* value);
  // Returns a reader of a nested message, or of the bytes of a `bytes` field.
  [[nodiscard]] ProtoReader ReadMessage();
  // Returns a view of a `bytes` or `string` field; empty after an error. REQUIRES: the message is in one
  // piece.
  [[nodiscard]] std::string_view ReadView() {
    const ProtoReader bytes = ReadMessage();
    return {reinterpret_cast<const char*>(bytes.here_), bytes.remaining()};
  }

  // Read repeated numbers, packed or one by one, and call add(uint64_t) for each.
  template <typename F>
  void ReadVarints(F&& add) {
    ReadRepeated<ProtoType::kVarint, &ProtoReader::Varint>(add);
  }
  template <typename F>
  void ReadFixed32s(F&& add) {
    ReadRepeated<ProtoType::kFixed32, &ProtoReader::Fixed32>(add);
  }
  template <typename F>
  void ReadFixed64s(F&& add) {
    ReadRepeated<ProtoType::kFixed64, &ProtoReader::Fixed64>(add);
  }
  // Returns how many numbers the next call of ReadFixed64s() reads at most.
  size_t num_fixed64s() const;

  // Returns a view of the rest of this message if it is in one piece, otherwise an empty one.
  std::string_view RestInOnePiece() const {
    if (rest_ != 0) return {};
    return {reinterpret_cast<const char*>(here_), static_cast<size_t>(end_ - here_)};
  }
  // Prefetches what Next() reads, for a caller that does something else before.
  void PrefetchNext() const { __builtin_prefetch(here_); }
  // Returns the number of bytes up to the end of this message.
  size_t remaining() const { return static_cast<size_t>(end_ - here_) + rest_; }
  // Copies these bytes to `out` and moves to the end.
  void CopyRest(uint8_t* out);
  // Returns views of these bytes.
  std::vector<ByteSlice> RestInParts() const;

  bool ok() const { return error_ == nullptr; }
  // Returns DATA_LOSS, or RESOURCE_EXHAUSTED for a value beyond a limit, naming message and field.
  Status status(std::string_view message) const;

 private:
  static constexpr const char* kCutShort = "is cut short";

  bool Refill();
  [[nodiscard]] bool Varint(uint64_t* value);
  [[nodiscard]] bool SlowVarint(uint64_t* value);
  [[nodiscard]] bool Fixed32(uint64_t* value);
  [[nodiscard]] bool Fixed64(uint64_t* value);
  template <ProtoType kType, bool (ProtoReader::*kReadOne)(uint64_t*), typename F>
  void ReadRepeated(F&& add) {
    uint64_t value = 0;
    if (type_ != ProtoType::kBytes) {
      if (Expect(kType) && (this->*kReadOne)(&value)) add(value);
      return;
    }
    ProtoReader packed = ReadMessage();
    while (error_ == nullptr && packed.remaining() > 0) {
      if ((packed.*kReadOne)(&value)) {
        add(value);
      } else {
        Fail(packed.error_);
      }
    }
  }
  // Moves past the value of the current field.
  [[nodiscard]] bool Skip();
  [[nodiscard]] bool BadTag(uint64_t tag);
  // REQUIRE: size <= remaining().
  void CopyOut(uint8_t* out, size_t size);
  void Advance(size_t size);
  ProtoReader Sub(size_t size) const;

  bool Expect(ProtoType type) {
    unread_ = false;
    if (error_ == nullptr && type_ != type) Fail("has another wire type than this protocol gives it");
    return error_ == nullptr;
  }
  // `error` has static storage duration.
  bool Fail(const char* error, bool too_large = false) {
    if (error_ == nullptr) {
      error_ = error;
      too_large_ = too_large;
    }
    return false;
  }

  const ByteSlice* slice_ = nullptr;  // the current one; null when the message is in one piece
  const uint8_t* here_ = nullptr;
  const uint8_t* end_ = nullptr;  // of the current slice, or of this message if that comes first
  size_t rest_ = 0;               // bytes of this message in slices after the current one
  const char* error_ = nullptr;
  uint32_t field_ = 0;
  ProtoType type_ = ProtoType::kVarint;
  bool unread_ = false;  // the value of the current field was not read yet
  bool too_large_ = false;
};

// --- Inline: called for every field of every message ---

inline bool ProtoReader::Varint(uint64_t* value) {
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

inline bool ProtoReader::Fixed32(uint64_t* value) {
  if (remaining() < sizeof(uint32_t)) return Fail(kCutShort);
  uint32_t bits = 0;
  CopyOut(reinterpret_cast<uint8_t*>(&bits), sizeof bits);
  *value = bits;
  return true;
}

inline bool ProtoReader::Fixed64(uint64_t* value) {
  if (static_cast<size_t>(end_ - here_) >= sizeof *value) [[likely]] {
    std::memcpy(value, here_, sizeof *value);
    here_ += sizeof *value;
    return true;
  }
  if (remaining() < sizeof *value) return Fail(kCutShort);
  CopyOut(reinterpret_cast<uint8_t*>(value), sizeof *value);
  return true;
}

inline bool ProtoReader::Next() {
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
  type_ = static_cast<ProtoType>(type);
  unread_ = true;
  return true;
}

inline ProtoReader ProtoReader::Sub(size_t size) const {
  ProtoReader sub;
  sub.slice_ = slice_;
  sub.here_ = here_;
  const auto in_slice = static_cast<size_t>(end_ - here_);
  const size_t first = size < in_slice ? size : in_slice;
  sub.end_ = here_ + first;
  sub.rest_ = size - first;
  return sub;
}

inline ProtoReader ProtoReader::ReadMessage() {
  uint64_t size = 0;
  if (!Expect(ProtoType::kBytes) || !Varint(&size)) return {};
  if (size > remaining()) {
    Fail(kCutShort);
    return {};
  }
  ProtoReader sub = Sub(size);
  if (sub.rest_ == 0) [[likely]] {
    here_ += size;
  } else if (size == remaining()) {  // nothing follows, so there is no need to find its end
    here_ = end_;
    rest_ = 0;
  } else {
    Advance(size);
  }
  return sub;
}

inline void ProtoReader::Read(uint64_t* value) {
  if (Expect(ProtoType::kVarint)) (void)Varint(value);
}

inline void ProtoReader::ReadInt(int64_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (ok()) *value = static_cast<int64_t>(wide);
}

inline void ProtoReader::ReadSint(int64_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (ok()) *value = UnZigZag(wide);
}

inline void ProtoReader::ReadFixed(uint64_t* value) {
  if (Expect(ProtoType::kFixed64)) (void)Fixed64(value);
}

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_PROTO_READER_H_
