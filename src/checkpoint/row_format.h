// row_format.h — the bytes of row tables in page files. docs/checkpoint-format.md describes them.
//
// Decoded bytes may come from a damaged file: decoders return DATA_LOSS and use memory in proportion to the
// bytes at most. They check what they need; RowState checks that the parts of a table fit together.
// Threads: free functions.
#ifndef REVERB_CHECKPOINT_ROW_FORMAT_H_
#define REVERB_CHECKPOINT_ROW_FORMAT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format.h"
#include "core/rows/row_snapshot.h"
#include "reverb/status.h"

namespace reverb::internal {

// Rows of one record.
inline constexpr size_t kRowsPerPage = 1024;

// A row table without its rows.
void EncodeRowTable(const SavedRowTable& table, std::string* out);
Result<SavedRowTable> DecodeRowTable(std::string_view bytes);

// Appends a row to a page. `next_slot`: the slot after that of the row before, 0 at the start of a page. `numbers`:
// the numbers of the names of tags. `places`: of the chunks of its parts.
void EncodeSavedRow(const SavedRow& row, uint32_t next_slot, std::span<const uint16_t> tag_names,
                    std::span<const ChunkPlace> places, std::string* out);

// A row of a page, before its chunks are loaded.
struct PageRow {
  SavedRow row;                    // parts without chunks
  std::vector<ChunkPlace> chunks;  // of the parts
};
// Calls `visit` for each row of a page. `table`: that of the rows.
Status DecodeRowPage(std::string_view bytes, const SavedRowTable& table,
                     const std::function<Status(PageRow&)>& visit);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_ROW_FORMAT_H_
