// chunk_fuzz.cc — chunks from a damaged disk or a hostile peer.
//
// Input: the size of the header (u16, little-endian), the encoded header, the payload.
// Properties: nothing reads or writes out of bounds; a header that decodes encodes to the same bytes, and
// packs and unpacks to itself; slices of a column that decodes equal slices of the whole.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_target.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"

namespace {

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

// Small, for speed: larger claims must be rejected anyway.
constexpr DecodeLimits kLimits = {.max_chunk_raw_bytes = 1 << 20, .max_rows = 1 << 12, .max_columns = 64};

void DecodeFixed(const ColumnView& column, std::span<const uint8_t> payload) {
  const size_t row_bytes = column.row_bytes();
  std::vector<uint8_t> whole(column.rows * row_bytes);
  const bool ok = DecodeRows(column, payload, 0, column.rows, whole).ok();

  const uint32_t offset = column.rows / 3;
  const uint32_t count = std::max<uint32_t>(column.rows / 2, 1);
  const BlockRange range = TouchedBlocks(column, offset, count);
  FUZZ_CHECK(range.first + range.count <= column.blocks.size());
  const size_t start = std::min<size_t>(range.payload_offset, payload.size());
  std::vector<uint8_t> part(count * row_bytes);
  const bool part_ok = DecodeRows(column, payload.subspan(start), offset, count, part, range.first).ok();
  if (ok) {
    FUZZ_CHECK(part_ok);
    FUZZ_CHECK(
        std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(offset * row_bytes)));
  }
}

void DecodeStrings(const ColumnView& column, std::span<const uint8_t> payload) {
  std::vector<std::string> whole;
  if (!DecodeStringRows(column, payload, 0, column.rows, &whole).ok()) return;
  FUZZ_CHECK(whole.size() == column.rows * column.row_elements());
  std::vector<std::string> last;
  FUZZ_CHECK(DecodeStringRows(column, payload, column.rows - 1, 1, &last).ok());
  FUZZ_CHECK(std::equal(last.begin(), last.end(), whole.end() - static_cast<ptrdiff_t>(last.size())));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint16_t header_size = 0;
  if (size < sizeof header_size) return 0;
  std::memcpy(&header_size, data, sizeof header_size);
  const std::span<const uint8_t> rest(data + sizeof header_size, size - sizeof header_size);
  if (header_size > rest.size()) return 0;
  const std::string_view encoded(reinterpret_cast<const char*>(rest.data()), header_size);

  const Result<ChunkHeader> header = DecodeChunkHeader(encoded, kLimits);
  if (!header.ok()) return 0;
  std::string again;
  EncodeChunkHeader(*header, &again);
  FUZZ_CHECK(again == encoded);

  std::vector<uint64_t> words(PackedSize(*header) / sizeof(uint64_t));
  Pack(*header, reinterpret_cast<uint8_t*>(words.data()));
  const PackedChunkHeader packed(reinterpret_cast<const uint8_t*>(words.data()));
  FUZZ_CHECK(packed.Unpack() == *header);
  FUZZ_CHECK(packed.packed_size() == words.size() * sizeof(uint64_t));

  // The payload may be shorter or longer than the header states. It is a separate copy, so that sanitizers
  // detect a read past its end.
  const std::vector<uint8_t> payload(rest.begin() + header_size, rest.end());
  for (uint32_t i = 0; i < packed.num_columns(); ++i) {
    const size_t start = std::min<size_t>(packed.column_payload_offset(i), payload.size());
    const auto mine = std::span(payload).subspan(start);
    const ColumnView column = packed.column(i);
    (void)VerifyChecksums(column, mine);
    if (column.dtype == DType::kString) {
      DecodeStrings(column, mine);
    } else {
      DecodeFixed(column, mine);
    }
  }
  return 0;
}
