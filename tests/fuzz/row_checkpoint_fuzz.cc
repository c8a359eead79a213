// Fuzzes the row tables of checkpoints: the state record, the rows, and whether a table can be restored from them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/row_format.h"
#include "core/rows/row_state.h"
#include "fuzz_target.h"
#include "testing/rows.h"

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

// The input: the size of the state record in two bytes, the record, and a page of rows.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t state_size = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  Result<SavedRowTable> saved = DecodeRowTable(bytes.substr(2, state_size));
  if (!saved.ok()) return 0;
  // What was read is written as it was.
  std::string again;
  EncodeRowTable(*saved, &again);
  FUZZ_CHECK(DecodeRowTable(again).ok());
  // A manifest bounds the rows by the size of their pages.
  if (saved->counts.rows < 0 || static_cast<uint64_t>(saved->counts.rows) > size / kMinRowBytes) return 0;
  const auto state = RowState::Create(saved->settings).value();
  RowEffects effects;
  if (!state->BeginRestore(*saved).ok()) return 0;
  const ChunkRef chunks[] = {test::RowChunk({3}), test::RowChunk({2, -1})};
  const Status read = DecodeRowPage(bytes.substr(2 + state_size), *saved, [&](PageRow& row) {
    for (size_t i = 0; i < row.chunks.size(); ++i) row.row.parts[i].chunk = chunks[row.chunks[i].ordinal % 2];
    return state->RestoreRow(std::move(row.row));
  });
  if (!read.ok() || !state->FinishRestore(&effects).ok()) return 0;
  // A restored table works, and can be saved again.
  const auto snapshot = std::make_unique<RowTableSnapshot>(state->size());
  state->Capture(snapshot.get());
  FUZZ_CHECK(snapshot->num_rows() == static_cast<size_t>(state->size()));
  for (size_t i = 0; i < snapshot->num_rows(); ++i) (void)snapshot->row(i);
  RowClaim claim{.consumer = "resume", .count = 1};
  for (const std::string& consumer : saved->settings.consumers) claim.consumer = consumer;
  claim.whole_groups = false;
  if (!state->CheckClaim(claim).ok()) return 0;
  const auto claimed = state->Claim(claim);
  if (claimed.ok() && *claimed)
    state->Settle((*claimed)->lease, {}, RowSettlement::kAcknowledge, Duration(0), &effects);
  uint64_t cursor = 0;
  (void)state->List(nullptr, 100, &cursor);
  (void)state->Counts();
  return 0;
}
