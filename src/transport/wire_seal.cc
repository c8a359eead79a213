#include "transport/wire_seal.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tensor/checksum.h"

namespace reverb::internal {
namespace {

Status Damaged(const char* what) {
  return Status::DataLoss(std::string("a message was damaged or lost in transit: ") + what)
      .WithDetail(Detail::kCorruptData);
}

struct Range {
  size_t offset;
  size_t size;
};

// Finds the long payloads of a message, in order. Returns false when the bytes are not a message.
bool FindLongPayloads(ProtoReader message, std::vector<Range>* found) {
  const size_t total = message.remaining();
  // Adds a payload that ends `behind` bytes before the end of the message.
  const auto add = [&](size_t size, size_t behind) { found->push_back({total - behind - size, size}); };
  while (message.Next()) {
    if (message.field() != kDataField && message.field() != kPartField) continue;
    ProtoReader nested = message.ReadMessage();
    if (nested.remaining() < kShareBytes) continue;
    if (message.field() == kPartField) {
      add(nested.remaining(), message.remaining());
      continue;
    }
    while (nested.Next()) {
      if (nested.field() != kDataField) continue;
      const size_t size = nested.ReadMessage().remaining();
      if (size >= kShareBytes) add(size, nested.remaining() + message.remaining());
    }
    if (!nested.ok()) return false;
  }
  return message.ok();
}

// Returns the checksum of all bytes outside the ranges, which are in order.
uint64_t ChecksumWithout(const std::vector<Range>& left_out, ByteSlices slices) {
  if (left_out.empty() && slices.size() == 1) return Checksum(slices[0]);
  std::vector<ByteSlice> parts;
  parts.reserve(slices.size() + left_out.size());
  size_t bytes = 0;
  size_t position = 0;  // of the slice in the message
  auto range = left_out.begin();
  for (const ByteSlice& slice : slices) {
    const size_t end = position + slice.size();
    size_t from = position;
    while (from < end) {
      while (range != left_out.end() && range->offset + range->size <= from) ++range;
      const size_t next = range == left_out.end() ? end : std::min(end, range->offset);
      if (next > from) {
        parts.push_back(slice.subspan(from - position, next - from));
        bytes += next - from;
        from = next;
      } else {
        from = std::min(end, range->offset + range->size);
      }
    }
    position = end;
  }
  return parts.size() == 1 ? Checksum(parts[0]) : Checksum(parts, 0, bytes);
}

}  // namespace

Status Unseal(uint64_t number, std::vector<ByteSlice>* slices) {
  uint8_t seal[kSealBytes];
  size_t have = 0;
  for (ByteSlice& slice : *slices) {
    const size_t taken = std::min(slice.size(), kSealBytes - have);
    std::memcpy(seal + have, slice.data(), taken);
    slice = slice.subspan(taken);
    have += taken;
    if (have == kSealBytes) break;
  }
  if (have < kSealBytes || seal[0] != kSealTag) return Damaged("it does not begin with a checksum");
  uint64_t expected = 0;
  std::memcpy(&expected, seal + 1, sizeof expected);

  const ProtoReader message(*slices);
  std::vector<Range> left_out;
  if (message.remaining() >= kShareBytes && !FindLongPayloads(message, &left_out)) {
    return Damaged("its fields are not those of a message");
  }
  if (ChecksumWithout(left_out, *slices) + number != expected) return Damaged("its checksum is wrong");
  return Status::Ok();
}

}  // namespace reverb::internal
