// wire_writer.h — writes protobuf messages, large payloads by reference.
//
// A message becomes a WireMessage: a sequence of Buffers. Small fields and small payloads share one block of
// heap memory; a payload of kShareBytes or more is a Buffer that refers to existing memory and keeps it
// alive, unless a WireEncoding says otherwise. Fields with the default value of proto3 are not written.
//
// The length of a nested message is known at its end only. One byte is reserved for it, which usually
// suffices; otherwise the bytes of the nested message are moved. For large ones the caller passes an
// estimate.
//
// Threads: a WireWriter belongs to one thread; a WireMessage is a value.
#ifndef REVERB_TRANSPORT_WIRE_WRITER_H_
#define REVERB_TRANSPORT_WIRE_WRITER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/growing_buffer.h"
#include "tensor/byte_io.h"
#include "tensor/chunk.h"
#include "tensor/proto_reader.h"

namespace reverb::internal {

class SharedMemory;

// From this size on, sending a payload by reference is cheaper than copying it. The number is part of the
// protocol: such payloads are not covered by the checksum of a message (wire_seal.h).
inline constexpr size_t kShareBytes = 1536;

// How the data of items and samples is written. The default is the protocol of docs/protocol.md. A receiver on
// the same host maps shared memory of the sender: it needs references to rows instead of their bytes, and the
// sender should not touch them.
struct WireEncoding {
  // Payloads of chunks, and raw rows of samples, that are in this memory become parts by reference from
  // min_shared_bytes on, others from kShareBytes on. Messages with smaller parts by reference cannot be sealed.
  const SharedMemory* shared_memory = nullptr;
  size_t min_shared_bytes = 128;
  // False: the checksums of raw rows of samples are 0 (RowChecksums::kOptional). Stored checksums, those of
  // chunks and of compressed rows, are always sent.
  bool row_checksums = true;
  // The parts borrow the memory of chunks: the caller keeps the items or samples alive as long as the message.
  // Otherwise each part by reference keeps its chunk alive.
  bool borrows_chunks = false;

  // Returns the encoding for a receiver that maps `memory`.
  static WireEncoding ForSharedMemory(const SharedMemory* memory) {
    return {.shared_memory = memory, .row_checksums = false, .borrows_chunks = true};
  }
};

// The size of the checksum field at the start of a sealed message (wire_seal.h).
inline constexpr size_t kSealBytes = 9;

class WireMessage {
 public:
  WireMessage() = default;
  // `own`: kSealBytes reserved, then the bytes of all parts that are not payloads by reference.
  WireMessage(std::vector<Buffer> parts, Buffer own) : parts_(std::move(parts)), own_(std::move(own)) {
    for (const Buffer& part : parts_) total_bytes_ += part.size();
  }

  // None of them is empty.
  const std::vector<Buffer>& parts() const { return parts_; }
  uint64_t total_bytes() const { return total_bytes_; }
  // Returns a copy of all bytes in one piece.
  std::string Flatten() const;

  // Prepends the checksum field. `number`: how many messages were sent before this one in the same direction
  // of the stream; 0 in single calls. Call it once.
  void Seal(uint64_t number);

 private:
  std::vector<Buffer> parts_;
  Buffer own_;
  uint64_t total_bytes_ = 0;
};

class WireWriter {
 public:
  // `expected_bytes`: an estimate of the bytes to be written, without payloads by reference.
  explicit WireWriter(size_t expected_bytes = 0, const WireEncoding& encoding = {})
      : encoding_(encoding), bytes_(kSealBytes + expected_bytes) {
    bytes_.EndAt(bytes_.Room(kSealBytes) + kSealBytes);
  }

  // --- Fields, not written when they have the default value ---

  void Uint(uint32_t field, uint64_t value) {
    if (value != 0) AlwaysUint(field, value);
  }
  // For numbers that are never negative; writes a negative one as 0.
  void Count(uint32_t field, int64_t value) {
    if (value > 0) AlwaysUint(field, static_cast<uint64_t>(value));
  }
  void Int(uint32_t field, int64_t value) { Uint(field, static_cast<uint64_t>(value)); }
  void Sint(uint32_t field, int64_t value) { Uint(field, ZigZag(value)); }
  void Bool(uint32_t field, bool value) { Uint(field, value ? 1 : 0); }
  void Fixed64(uint32_t field, uint64_t value) {
    if (value == 0) return;
    char* const at = WriteTag(bytes_.Room(kMaxVarintBytes + sizeof value), field, ProtoType::kFixed64);
    std::memcpy(at, &value, sizeof value);
    bytes_.EndAt(at + sizeof value);
  }
  void Double(uint32_t field, double value) { Fixed64(field, std::bit_cast<uint64_t>(value)); }
  void Bytes(uint32_t field, std::string_view value) {
    if (!value.empty()) AlwaysBytes(field, value);
  }
  // Writes an empty value too.
  void AlwaysBytes(uint32_t field, std::string_view value) {
    BeginBytes(field, value.size());
    Append({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  }
  // Write packed numbers; nothing for an empty list.
  void PackedUint(uint32_t field, std::span<const uint32_t> values);
  void PackedUint(uint32_t field, std::span<const uint64_t> values);
  void PackedFixed64(uint32_t field, std::span<const uint64_t> values);

  // For `optional` fields, whose presence has a meaning.
  void AlwaysUint(uint32_t field, uint64_t value) {
    char* const at = WriteTag(bytes_.Room(2 * kMaxVarintBytes), field, ProtoType::kVarint);
    bytes_.EndAt(WriteVarint(at, value));
  }

  // --- Nested messages: everything between Begin and End ---

  struct Nested {
    size_t length_at;        // where the length goes
    size_t length_bytes;     // reserved for it
    uint64_t shared_before;  // bytes by reference at the beginning
  };
  [[nodiscard]] Nested Begin(uint32_t field, uint64_t expected_bytes = 0) {
    char* const at = WriteTag(bytes_.Room(2 * kMaxVarintBytes), field, ProtoType::kBytes);
    const size_t length_bytes = VarintSize(expected_bytes);
    bytes_.EndAt(at + length_bytes);
    return {bytes_.size() - length_bytes, length_bytes, shared_bytes_};
  }
  void End(const Nested& nested) {
    const size_t body = nested.length_at + nested.length_bytes;
    const uint64_t length = (bytes_.size() - body) + (shared_bytes_ - nested.shared_before);
    if (VarintSize(length) != nested.length_bytes) [[unlikely]]
      MoveBody(nested, length);
    WriteVarint(bytes_.data() + nested.length_at, length);
  }

  // --- Payloads: BeginPayload, then exactly `size` bytes with the functions below it. Payloads of
  // kShareBytes and more are sent by reference, others are copied. ---

  void BeginPayload(uint32_t field, uint64_t size) {
    BeginBytes(field, size);
    is_shared_ = size >= kShareBytes;
  }
  // Same for the payload of a chunk, which may be by reference from fewer bytes on (WireEncoding).
  void BeginPayload(uint32_t field, std::span<const uint8_t> payload) {
    BeginPayload(field, payload.size());
    is_shared_ |= IsShared(payload);
  }
  // Same for rows of chunks, which are by reference if the caller says so.
  void BeginRows(uint32_t field, uint64_t size, bool by_reference) {
    BeginPayload(field, size);
    is_shared_ |= by_reference;
  }
  void AppendShared(Buffer buffer);
  void AppendOf(Chunk* chunk, std::span<const uint8_t> bytes) {
    if (!is_shared_ || !encoding_.borrows_chunks || bytes.empty()) return AppendOther(chunk, bytes);
    shared_bytes_ += bytes.size();
    shares_.push_back({bytes_.size(), Buffer(nullptr, bytes.data(), bytes.size())});
  }
  // Prepares for so many more bytes that are not payloads by reference.
  void ReserveBytes(size_t count) { bytes_.Reserve(count); }
  // Prepares for so many more payloads, or parts of them, by reference.
  void ReserveShared(size_t count) {
    if (shares_.capacity() - shares_.size() < count) shares_.reserve(shares_.size() + count);
  }

  const WireEncoding& encoding() const { return encoding_; }
  // Returns whether bytes of a chunk are in memory that the receiver reads, and enough for a reference.
  bool IsShared(std::span<const uint8_t> bytes) const {
    return bytes.size() >= encoding_.min_shared_bytes && IsReadable(bytes);
  }
  // Returns whether they are in memory that the receiver reads.
  bool IsReadable(std::span<const uint8_t> bytes) const;

  // Returns the message. The writer must not be used afterwards.
  WireMessage Finish();

 private:
  struct Share {
    size_t at;  // it comes before this byte of bytes_
    Buffer buffer;
  };

  static char* WriteTag(char* at, uint32_t field, ProtoType type) {
    return WriteVarint(at, field << 3 | static_cast<uint32_t>(type));
  }
  void BeginBytes(uint32_t field, uint64_t size) {
    char* const at = WriteTag(bytes_.Room(2 * kMaxVarintBytes), field, ProtoType::kBytes);
    bytes_.EndAt(WriteVarint(at, size));
  }
  // Makes room for `length` in front of the nested message.
  void MoveBody(const Nested& nested, uint64_t length);
  void AppendOther(Chunk* chunk, std::span<const uint8_t> bytes);
  void Append(std::span<const uint8_t> bytes) { bytes_.Append(bytes); }
  template <typename Integer>
  void PackedVarints(uint32_t field, std::span<const Integer> values);

  const WireEncoding encoding_;
  bool is_shared_ = false;  // the current payload
  GrowingBuffer bytes_;     // kSealBytes reserved, then the written bytes
  std::vector<Share> shares_;
  uint64_t shared_bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_WRITER_H_
