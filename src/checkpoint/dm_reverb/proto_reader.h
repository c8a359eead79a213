// proto_reader.h — reads the fields of one protobuf message that lies in memory.
//
//   for (ProtoReader reader(bytes); reader.Next();) {
//     if (reader.field() == 1) key = reader.AsUint64();
//   }
//
// A value of another wire type than asked for, or bytes that are no message, make the reader
// damaged: Next() is false from then on, values are zero or empty. Ask damaged() at the end.
// Borrows its input. Threads: a value.
#ifndef REVERB_CHECKPOINT_DM_REVERB_PROTO_READER_H_
#define REVERB_CHECKPOINT_DM_REVERB_PROTO_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace reverb::internal {

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : message_(message) {}

  // Goes to the next field. False at the end, and when damaged.
  bool Next() {
    if (damaged_ || position_ == message_.size()) return false;
    uint64_t tag = 0;
    if (!ReadVarint(&tag) || tag >> 3 == 0 || tag >> 32 != 0) return Damage();
    field_ = static_cast<uint32_t>(tag >> 3);
    wire_type_ = static_cast<uint8_t>(tag & 7);
    switch (wire_type_) {
      case kVarint:
        return ReadVarint(&number_) || Damage();
      case kFixed64:
        return ReadFixed(8) || Damage();
      case kFixed32:
        return ReadFixed(4) || Damage();
      case kBytes: {
        uint64_t size = 0;
        if (!ReadVarint(&size) || size > message_.size() - position_) return Damage();
        bytes_ = message_.substr(position_, size);
        position_ += size;
        return true;
      }
      default:  // groups, which proto3 does not have
        return Damage();
    }
  }

  uint32_t field() const { return field_; }
  bool damaged() const { return damaged_; }

  // The value of the present field.
  uint64_t AsUint64() { return Is(kVarint) ? number_ : 0; }
  int64_t AsInt64() { return static_cast<int64_t>(AsUint64()); }
  int32_t AsInt32() { return static_cast<int32_t>(AsUint64()); }
  bool AsBool() { return AsUint64() != 0; }
  double AsDouble() { return Is(kFixed64) ? std::bit_cast<double>(number_) : 0; }
  std::string_view AsBytes() { return Is(kBytes) ? bytes_ : std::string_view(); }
  // The numbers of a repeated field: one, or a packed run of them. Calls visit(uint64_t).
  template <typename F>
  void ForEachUint64(F&& visit) {
    if (wire_type_ != kBytes) {
      if (Is(kVarint)) visit(number_);
      return;
    }
    ProtoReader run(bytes_);
    while (run.position_ < run.message_.size()) {
      uint64_t number = 0;
      if (!run.ReadVarint(&number)) {
        Damage();
        return;
      }
      visit(number);
    }
  }
  // The same for numbers of `size` bytes each, 4 or 8, as their bits.
  template <typename F>
  void ForEachFixed(size_t size, F&& visit) {
    if (wire_type_ != kBytes) {
      if (Is(size == 4 ? kFixed32 : kFixed64)) visit(number_);
      return;
    }
    ProtoReader run(bytes_);
    while (run.position_ < run.message_.size()) {
      if (!run.ReadFixed(size)) {
        Damage();
        return;
      }
      visit(run.number_);
    }
  }

 private:
  enum : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  bool Damage() {
    damaged_ = true;
    return false;
  }
  bool Is(uint8_t wire_type) { return !damaged_ && (wire_type_ == wire_type || Damage()); }
  // Longer spellings than needed are fine, as they are for every reader of protobuf.
  bool ReadVarint(uint64_t* value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 64 && position_ < message_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(message_[position_++]);
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        *value = result;
        return true;
      }
    }
    return false;
  }
  bool ReadFixed(size_t size) {
    if (message_.size() - position_ < size) return false;
    number_ = 0;
    std::memcpy(&number_, message_.data() + position_, size);
    position_ += size;
    return true;
  }

  std::string_view message_;
  size_t position_ = 0;
  bool damaged_ = false;
  uint32_t field_ = 0;
  uint8_t wire_type_ = 0;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_PROTO_READER_H_
