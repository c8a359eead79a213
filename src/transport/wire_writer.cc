#include "transport/wire_writer.h"

#include "base/shared_memory.h"
#include "tensor/checksum.h"
#include "transport/wire_seal.h"

namespace reverb::internal {
namespace {

class StringOwner final : public BufferOwner {
 public:
  explicit StringOwner(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string& bytes() { return bytes_; }

 private:
  ~StringOwner() override = default;
  std::string bytes_;
};

}  // namespace

std::string WireMessage::Flatten() const {
  std::string all;
  all.reserve(total_bytes_);
  for (const Buffer& part : parts_) all.append(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

void WireWriter::PackedUint(uint32_t field, std::span<const uint32_t> values) {
  if (values.empty()) return;
  uint64_t size = 0;
  for (uint32_t value : values) size += VarintSize(value);
  BeginBytes(field, size);
  for (uint32_t value : values) PutVarint(&bytes_, value);
}

void WireWriter::PackedUint(uint32_t field, std::span<const uint64_t> values) {
  if (values.empty()) return;
  uint64_t size = 0;
  for (uint64_t value : values) size += VarintSize(value);
  BeginBytes(field, size);
  for (uint64_t value : values) PutVarint(&bytes_, value);
}

void WireWriter::PackedFixed64(uint32_t field, std::span<const uint64_t> values) {
  if (values.empty()) return;
  BeginBytes(field, values.size_bytes());
  Append({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

void WireWriter::End(const Nested& nested) {
  const size_t body = nested.length_at + nested.length_bytes;
  const uint64_t length = (bytes_.size() - body) + (shared_bytes_ - nested.shared_before);
  const size_t needed = VarintSize(length);
  if (needed != nested.length_bytes) [[unlikely]] {
    const auto moved = static_cast<ptrdiff_t>(needed) - static_cast<ptrdiff_t>(nested.length_bytes);
    if (moved > 0) {
      bytes_.insert(body, static_cast<size_t>(moved), '\0');
    } else {
      bytes_.erase(nested.length_at, static_cast<size_t>(-moved));
    }
    // Payloads by reference inside this message were added after its start.
    for (auto share = shares_.rbegin(); share != shares_.rend() && share->at >= body; ++share) {
      share->at += static_cast<size_t>(moved);
    }
  }
  WriteVarint(bytes_.data() + nested.length_at, length);
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
  const size_t size = bytes_.size();
  auto* const owner = new StringOwner(std::exchange(bytes_, {}));
  const Buffer own(owner, reinterpret_cast<const uint8_t*>(owner->bytes().data()), size);
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
