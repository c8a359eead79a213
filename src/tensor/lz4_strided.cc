#include "tensor/lz4_strided.h"

#include <array>
#include <bit>
#include <cstring>

namespace reverb::internal {
namespace {

// Rules of the LZ4 block format.
constexpr size_t kMinMatch = 4;
constexpr size_t kLastLiterals = 5;         // the last bytes are never part of a match
constexpr size_t kMatchStartsFromEnd = 12;  // no match starts within the last bytes
constexpr size_t kLongLength = 15;          // lengths from here on continue in further bytes

// Skips faster the longer no match was found: by one more byte after each 64.
constexpr size_t kLogSkip = 6;
constexpr size_t kLogHash = 12;

template <typename T>
T LoadWord(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

size_t HashOf(uint32_t bytes) { return (bytes * 2654435761U) >> (32 - kLogHash); }

// Returns how many bytes from `a` on, at most up to `end`, equal those from `b` on. REQUIRES: b < a.
size_t CountEqual(const uint8_t* a, const uint8_t* b, const uint8_t* end) {
  const uint8_t* const begin = a;
  static_assert(std::endian::native == std::endian::little);
  for (; static_cast<size_t>(end - a) >= sizeof(uint64_t); a += sizeof(uint64_t), b += sizeof(uint64_t)) {
    const uint64_t difference = LoadWord<uint64_t>(a) ^ LoadWord<uint64_t>(b);
    if (difference != 0) return static_cast<size_t>(a - begin) + std::countr_zero(difference) / 8;
  }
  while (a < end && *a == *b) ++a, ++b;
  return static_cast<size_t>(a - begin);
}

// Writes sequences: literals, then a match.
class SequenceWriter {
 public:
  explicit SequenceWriter(std::span<uint8_t> out) : begin_(out.data()), to_(begin_), end_(to_ + out.size()) {}

  // Both return false if the sequence does not fit.
  bool Append(std::span<const uint8_t> literals, size_t offset, size_t length) {
    length -= kMinMatch;
    if (Room() < Size(literals.size()) + 2 + length / 255 + 1) return false;
    uint8_t* const token = AppendLiterals(literals);
    *to_++ = static_cast<uint8_t>(offset);
    *to_++ = static_cast<uint8_t>(offset >> 8);
    *token |= static_cast<uint8_t>(length < kLongLength ? length : kLongLength);
    AppendRestOfLength(length);
    return true;
  }
  bool AppendLast(std::span<const uint8_t> literals) {
    if (Room() < Size(literals.size())) return false;
    AppendLiterals(literals);
    return true;
  }
  size_t size() const { return static_cast<size_t>(to_ - begin_); }

 private:
  size_t Room() const { return static_cast<size_t>(end_ - to_); }
  // Returns the size of a token with literals.
  static size_t Size(size_t literals) {
    return 1 + (literals < kLongLength ? 0 : (literals - kLongLength) / 255 + 1) + literals;
  }
  uint8_t* AppendLiterals(std::span<const uint8_t> literals) {
    uint8_t* const token = to_++;
    *token = static_cast<uint8_t>((literals.size() < kLongLength ? literals.size() : kLongLength) << 4);
    AppendRestOfLength(literals.size());
    if (!literals.empty()) std::memcpy(to_, literals.data(), literals.size());
    to_ += literals.size();
    return token;
  }
  void AppendRestOfLength(size_t length) {
    if (length < kLongLength) return;
    for (length -= kLongLength; length >= 255; length -= 255) *to_++ = 255;
    *to_++ = static_cast<uint8_t>(length);
  }

  uint8_t* const begin_;
  uint8_t* to_;
  uint8_t* const end_;
};

}  // namespace

size_t CompressLz4Strided(std::span<const uint8_t> in, std::span<const uint32_t> strides,
                          std::span<uint8_t> out) {
  if (in.size() > kMaxStridedBytes) return 0;
  SequenceWriter writer(out);
  const uint8_t* const begin = in.data();
  const uint8_t* anchor = begin;  // end of the last match
  if (in.size() > kMatchStartsFromEnd) {
    const uint8_t* const last_start = begin + in.size() - kMatchStartsFromEnd;
    const uint8_t* const match_end = begin + in.size() - kLastLiterals;
    std::array<uint16_t, size_t{1} << kLogHash> newest{};  // position of the newest bytes with a hash
    size_t last_offset = 1;
    for (const uint8_t* at = begin; at < last_start;) {
      const auto position = static_cast<size_t>(at - begin);
      const auto bytes = LoadWord<uint32_t>(at);
      size_t length = 0;
      size_t offset = 0;
      const auto consider = [&](size_t distance) {
        if (distance > position || LoadWord<uint32_t>(at - distance) != bytes) return;
        const size_t found = kMinMatch + CountEqual(at + kMinMatch, at - distance + kMinMatch, match_end);
        if (found <= length) return;
        length = found;
        offset = distance;
      };
      consider(last_offset);
      for (const uint32_t stride : strides) consider(stride);
      uint16_t& hashed = newest[HashOf(bytes)];
      if (hashed < position) consider(position - hashed);
      hashed = static_cast<uint16_t>(position);
      if (length == 0) {
        at += 1 + (static_cast<size_t>(at - anchor) >> kLogSkip);
        continue;
      }
      while (at > anchor && at - offset > begin && at[-1] == at[-1 - static_cast<ptrdiff_t>(offset)]) {
        --at;
        ++length;
      }
      if (!writer.Append({anchor, at}, offset, length)) return 0;
      last_offset = offset;
      at += length;
      anchor = at;
      if (at < last_start) newest[HashOf(LoadWord<uint32_t>(at - 2))] = static_cast<uint16_t>(at - 2 - begin);
    }
  }
  return writer.AppendLast({anchor, begin + in.size()}) ? writer.size() : 0;
}

}  // namespace reverb::internal
