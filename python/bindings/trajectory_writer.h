// trajectory_writer.h — reverb.TrajectoryWriter: nests in, columns out.
#ifndef REVERB_PYTHON_TRAJECTORY_WRITER_H_
#define REVERB_PYTHON_TRAJECTORY_WRITER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "columns.h"
#include "nests.h"
#include "python_api.h"
#include "step_columns.h"
#include "tree.h"

namespace reverb::python {

class TrajectoryWriterObject {
 public:
  TrajectoryWriterObject(ClientObject& client, int64_t num_keep_alive_refs, bool validate_items,
                         Timeout timeout);
  ~TrajectoryWriterObject();
  TrajectoryWriterObject(const TrajectoryWriterObject&) = delete;
  TrajectoryWriterObject& operator=(const TrajectoryWriterObject&) = delete;

  void Append(nb::handle data, Truth partial_step);
  void AppendSequence(nb::handle data);
  void CreateItem(std::string_view table, nb::handle priority, nb::handle trajectory);
  nb::object history();
  void Flush(int64_t block_until_num_items, Timeout timeout);
  void EndEpisode(bool clear_buffers, Timeout timeout);
  int64_t Close();
  void Configure(nb::handle path, int64_t num_keep_alive_refs, std::optional<int64_t> max_chunk_length);
  bool is_closing() const { return is_closing_; }
  int64_t episode_steps();
  int64_t num_keep_alive_refs();
  bool step_is_open();

 private:
  enum class Extent { kStep, kPartialStep, kSequence };

  void CheckOpen() const;
  void Append(nb::handle data, Extent extent);
  void AppendLeaves(Extent extent);
  TrajectoryWriter& writer() { return *state_->writer; }

  std::shared_ptr<WriterState> state_;
  std::atomic<bool> is_closing_{false};

  // Guarded by the turn, with the GIL.
  StepColumns<TrajectoryWriter> steps_;
  ItemNest items_;

  // Reused from call to call.
  Views views_;
  std::vector<Structure::Leaf> leaves_;
  std::vector<ColumnValue> values_;
  std::vector<ItemColumn> item_columns_;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_TRAJECTORY_WRITER_H_
