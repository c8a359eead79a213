#include "transport/wire_writer.h"

#include "base/shared_memory.h"
#include "tensor/checksum.h"
#include "transport/wire_seal.h"

namespace reverb::internal {

std::string WireMessage::Flatten() const {
  std::string all;
  all.reserve(total_bytes_);
  for (const Buffer& part : parts_) all.append(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

template <typename Integer>
void WireWriter::PackedVarints(uint32_t field, std::span<const Integer> values) {
  if (values.empty()) return;
  uint64_t size = 0;
  for (const Integer value : values) size += VarintSize(value);
  BeginBytes(field, size);
  char* at = bytes_.Room(size);
  for (const Integer value : values) at = WriteVarint(at, value);
  bytes_.EndAt(at);
}

void WireWriter::PackedUint(uint32_t field, std::span<const uint32_t> values) {
  PackedVarints(field, values);
}

void WireWriter::PackedUint(uint32_t field, std::span<const uint64_t> values) {
  PackedVarints(field, values);
}

void WireWriter::PackedFixed64(uint32_t field, std::span<const uint64_t> values) {
  if (values.empty()) return;
  BeginBytes(field, values.size_bytes());
  Append({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

void WireWriter::MoveBody(const Nested& nested, uint64_t length) {
  const size_t body = nested.length_at + nested.length_bytes;
  const auto moved = static_cast<ptrdiff_t>(VarintSize(length)) - static_cast<ptrdiff_t>(nested.length_bytes);
  if (moved > 0) {
    bytes_.InsertGap(body, static_cast<size_t>(moved));
  } else {
    bytes_.Erase(nested.length_at, static_cast<size_t>(-moved));
  }
  // Payloads by reference inside this message were added after its start.
  for (auto share = shares_.rbegin(); share != shares_.rend() && share->at >= body; ++share) {
    share->at += static_cast<size_t>(moved);
  }
}

void WireWriter::AppendShared(Buffer buffer) {
  if (!is_shared_) return Append(buffer.span());
  if (buffer.empty()) return;
  shared_bytes_ += buffer.size();
  shares_.push_back({bytes_.size(), std::move(buffer)});
}

bool WireWriter::IsReadable(std::span<const uint8_t> bytes) const {
  return encoding_.shared_memory != nullptr && encoding_.shared_memory->Contains(bytes.data());
}

void WireWriter::AppendOther(Chunk* chunk, std::span<const uint8_t> bytes) {
  if (!is_shared_) return Append(bytes);
  AppendShared(encoding_.borrows_chunks ? Buffer(nullptr, bytes.data(), bytes.size())
                                        : ShareBytes(ChunkRef::Share(chunk), bytes));
}

WireMessage WireWriter::Finish() {
  std::vector<Buffer> parts;
  std::vector<Share> shares = std::exchange(shares_, {});
  shared_bytes_ = 0;
  const Buffer own = bytes_.Take();
  const size_t size = own.size();
  size_t position = kSealBytes;
  parts.reserve(2 * shares.size() + 1);
  for (Share& share : shares) {
    if (share.at > position) parts.push_back(own.Slice(position, share.at - position));
    position = share.at;
    parts.push_back(std::move(share.buffer));
  }
  if (position < size) parts.push_back(own.Slice(position, size - position));
  return WireMessage(std::move(parts), own);
}

void WireMessage::Seal(uint64_t number) {
  if (own_.empty()) *this = WireWriter().Finish();
  // No other Buffer refers to the reserved bytes.
  auto* const room = const_cast<uint8_t*>(own_.data());
  room[0] = kSealTag;
  const uint64_t checksum = Checksum(own_.span().subspan(kSealBytes)) + number;
  std::memcpy(room + 1, &checksum, sizeof checksum);
  // A message starts with a tag, which is never a payload by reference.
  if (parts_.empty()) {
    parts_.push_back(own_);
  } else {
    parts_[0] = own_.Slice(0, kSealBytes + parts_[0].size());
  }
  total_bytes_ += kSealBytes;
}

}  // namespace reverb::internal
