// legacy_writer.h — the older writer: whole steps, and items of the last n of them.
//
// A TrajectoryWriterImpl whose columns all share their chunks. The first step fixes dtypes and shapes, so
// that all steps of an item are compatible. All steps belong to one episode unless EndEpisode() is called.
//
// Threads: one at a time.
#ifndef REVERB_CLIENT_LEGACY_WRITER_H_
#define REVERB_CLIENT_LEGACY_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "client/item_sink.h"
#include "client/trajectory_writer.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb::internal {

class LegacyWriter {
 public:
  // REQUIRES: valid options.
  LegacyWriter(const WriterOptions& options, std::unique_ptr<ItemSink> sink);

  // These methods are documented in reverb/writer.h.
  Status Append(std::span<const TensorView> step);
  Status AppendSequence(std::span<const TensorView> sequence);
  Status CreateItem(std::string_view table, int64_t num_timesteps, double priority,
                    const ItemStructure& structure = {});
  Status Flush(const WaitOptions& wait);
  Status EndEpisode(const WaitOptions& wait);
  Status Close(const WaitOptions& wait);
  bool is_closed() const { return writer_.is_closed(); }
  int64_t unconfirmed_items() const { return writer_.unconfirmed_items(); }

 private:
  Status CheckOpen(std::string_view method) const;
  Status CheckStep(std::span<const TensorView> step) const;
  Status AppendChecked(std::span<const TensorView> step);
  // Waits until at most `at_most` items are unconfirmed. Called before any change, so that a failed wait has
  // no effect. Several items that waited for the same chunk may exceed the bound.
  Status AwaitWindow(int64_t at_most);

  const int64_t max_sequence_length_;
  const std::optional<int64_t> max_in_flight_items_;
  SignatureCheck signatures_;
  const WaitOptions wait_for_room_;
  TrajectoryWriterImpl writer_;
  uint32_t num_columns_ = 0;   // 0 before the first step
  int64_t episode_begin_ = 0;  // the position of its first step

  // Reused between calls.
  std::vector<ColumnValue> values_;
  std::vector<CellRange> ranges_;
  std::vector<ItemColumn> columns_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_LEGACY_WRITER_H_
