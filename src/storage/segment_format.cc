#include "storage/segment_format.h"

#include <cstring>

#include "tensor/byte_io.h"
#include "tensor/checksum.h"

namespace reverb::internal {
namespace {

uint64_t ChecksumOfText(std::string_view text) {
  return Checksum({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

std::string EncodeSegmentHeader(uint64_t number, SegmentKind kind) {
  std::string out(kSegmentMagic);
  PutFixed32(&out, kSegmentVersion);
  PutFixed32(&out, static_cast<uint32_t>(kind));
  PutFixed64(&out, number);
  PutFixed64(&out, ChecksumOfText(out));
  return out;
}

void AppendChunkRecordHead(const PackedChunkHeader& header, uint32_t payload_size, std::string* out) {
  const size_t begin = out->size();
  out->resize(begin + kChunkRecordHeadBytes);
  EncodeChunkHeader(header.Unpack(), out);
  const auto header_size = static_cast<uint32_t>(out->size() - begin - kChunkRecordHeadBytes);
  std::memcpy(out->data() + begin + 8, &header_size, 4);
  std::memcpy(out->data() + begin + 12, &payload_size, 4);
  // The payload has its own checksums, in the header.
  const uint64_t checksum = ChecksumOfText(std::string_view(*out).substr(begin + 8));
  std::memcpy(out->data() + begin, &checksum, 8);
}

void AppendFillerHead(uint64_t bytes, std::string* out) {
  std::string sizes;
  PutFixed32(&sizes, 0);
  PutFixed32(&sizes, static_cast<uint32_t>(bytes - kChunkRecordHeadBytes));
  PutFixed64(out, ChecksumOfText(sizes));
  *out += sizes;
}

std::string EncodeSegmentEnd(std::span<const uint64_t> record_sizes, uint64_t index_offset) {
  std::string end;
  for (const uint64_t size : record_sizes) PutVarint(&end, size);
  std::string trailer;
  PutFixed64(&trailer, index_offset);
  PutFixed64(&trailer, record_sizes.size());
  PutFixed64(&trailer, ChecksumOfText(end));
  PutFixed64(&trailer, ChecksumOfText(trailer));
  return end + trailer;
}

}  // namespace reverb::internal
