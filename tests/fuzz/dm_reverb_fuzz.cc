// dm_reverb_fuzz.cc — records of dm-reverb checkpoints. The first byte selects the kind: t for a table, i for
// an item, c for a chunk. A chunk that is accepted is valid and can be decoded.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dm_reverb/chunk_data.h"
#include "checkpoint/dm_reverb/dm_reverb_messages.h"
#include "fuzz_target.h"
#include "tensor/chunk.h"
#include "tensor/column.h"

namespace {

using namespace reverb::internal;  // NOLINT: all of it is theirs

// Small enough to be decoded many times per second.
constexpr DecodeLimits kLimits{.max_chunk_raw_bytes = 1 << 20, .max_rows = 1 << 12, .max_columns = 64};

void ReadChunk(std::string_view record) {
  ChunkConverter converter(kLimits);
  const reverb::Result<ChunkConverter::Converted> converted = converter.Convert(record);
  if (!converted.ok()) return;
  FUZZ_CHECK(ChunkKeyOf(record).ok());
  const reverb::Result<ChunkRef> chunk = Chunk::Copy(1, converted->header, converted->payload, kLimits);
  FUZZ_CHECK(chunk.ok());
  for (uint32_t i = 0; i < (*chunk)->header().num_columns(); ++i) {
    const ColumnView column = (*chunk)->header().column(i);
    FUZZ_CHECK(VerifyChecksums(column, (*chunk)->column_payload(i)).ok());
    if (column.dtype == reverb::DType::kString) {
      std::vector<std::string> strings;
      FUZZ_CHECK(DecodeStringRows(column, (*chunk)->column_payload(i), 0, column.rows, &strings).ok());
    } else {
      std::vector<uint8_t> rows(column.rows * column.row_bytes());
      FUZZ_CHECK(DecodeRows(column, (*chunk)->column_payload(i), 0, column.rows, rows).ok());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view record(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] == 't') {
    const reverb::Result<DmReverbTableRecord> table = ParseDmReverbTable(record);
    if (table.ok()) FUZZ_CHECK(table->options.Validate().ok());
  } else if (data[0] == 'i') {
    const reverb::Result<DmReverbItem> item = ParseDmReverbItem(record);
    if (item.ok()) FUZZ_CHECK(item->columns.empty() != item->chunk_keys.empty());
  } else if (data[0] == 'c') {
    ReadChunk(record);
  }
  return 0;
}
