// vector_writer.h — many environments, each with its own columns, over one connection.
//
// Each environment is a TrajectoryWriterImpl. The items that they create during a call are collected and
// passed to the sink together at its end, so that a step of all environments is one message.
//
// Errors are detected before the first environment is changed, or by the first one. Threads: one at a time.
#ifndef REVERB_CLIENT_VECTOR_WRITER_H_
#define REVERB_CLIENT_VECTOR_WRITER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/item_sink.h"
#include "client/trajectory_writer.h"
#include "reverb/status.h"
#include "reverb/vector_writer.h"
#include "reverb/wait.h"

namespace reverb::internal {

class VectorWriterImpl {
 public:
  // REQUIRES: valid options.
  VectorWriterImpl(const VectorWriterOptions& options, std::unique_ptr<ItemSink> sink);
  ~VectorWriterImpl();
  VectorWriterImpl(const VectorWriterImpl&) = delete;
  VectorWriterImpl& operator=(const VectorWriterImpl&) = delete;

  // These methods are documented in reverb/vector_writer.h.
  Status Append(std::span<const ColumnValue> values, EnvironmentMask mask) {
    return Append(values, mask, /*closes_step=*/true);
  }
  Status AppendPartial(std::span<const ColumnValue> values, EnvironmentMask mask) {
    return Append(values, mask, /*closes_step=*/false);
  }
  Result<std::vector<uint8_t>> CreateItems(std::string_view table, std::span<const double> priorities,
                                           std::span<const VectorItemColumn> columns, EnvironmentMask mask,
                                           const ItemStructure& structure = {});
  Status EndEpisode(EnvironmentMask mask);
  Status Flush(int64_t block_until_num_items, const WaitOptions& wait);
  int64_t Close();
  Status Configure(uint32_t column, const ChunkingOptions& options);
  Status NameColumn(uint32_t column, std::string path);

  bool may_wait() const { return sink_->may_wait(); }
  int64_t unconfirmed_items() const { return waiting_items() + sink_->pending_items(); }
  size_t num_environments() const { return environments_.size(); }
  const TrajectoryWriterImpl& environment(size_t i) const { return environments_[i]; }

 private:
  // The output of the current call, and the sink's state for the environments.
  struct CallOutput {
    std::vector<Item> items;
    std::vector<uint64_t> forgotten;  // chunks; to be forgotten after all items
    Status health;                    // the sink's status at the start of the call
  };
  class EnvironmentSink;
  struct Column {
    std::string path;
    bool known = false;  // whether dtype and dims are set
    DType dtype = DType::kFloat32;
    std::vector<int64_t> dims;
  };

  // Start and end each call that writes.
  Status Begin(EnvironmentMask mask);
  Status SendOutput();

  Status Append(std::span<const ColumnValue> values, EnvironmentMask mask, bool closes_step);
  std::string Describe(uint32_t column) const;
  Status CheckValues(std::span<const ColumnValue> values) const;
  void LearnColumns(std::span<const ColumnValue> values);
  // Makes rows_ refer to the rows of the environment.
  void SelectRows(std::span<const ColumnValue> values, size_t environment);
  Status AppendRows(std::span<const ColumnValue> values, EnvironmentMask mask, bool closes_step);

  Status CheckRange(const StepRange& range) const;
  Status CheckItems(std::span<const double> priorities, std::span<const VectorItemColumn> columns) const;
  // Resolves `columns` for an environment into item_columns_; returns false if its episode is too short.
  bool ResolveColumns(const TrajectoryWriterImpl& environment, std::span<const VectorItemColumn> columns);
  Status PrepareItems(std::string_view table, std::span<const double> priorities,
                      std::span<const VectorItemColumn> columns, EnvironmentMask mask);
  Status WaitForRoom();
  // Completes the chunks of all waiting items of each environment except the newest `keep`.
  Status FinishWaiting(size_t keep);
  int64_t waiting_items() const;

  const std::unique_ptr<ItemSink> sink_;
  const WaitOptions wait_for_room_;
  CallOutput output_;
  std::deque<TrajectoryWriterImpl> environments_;
  std::vector<Column> columns_;
  bool is_closed_ = false;
  bool has_partial_steps_ = false;  // AppendPartial() was called: some environments may have an open step

  // Reused between calls.
  std::vector<ColumnValue> rows_;
  std::vector<CellRange> cells_;
  std::vector<ItemColumn> item_columns_;
  std::vector<size_t> prepared_;  // environments that will get an item
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_VECTOR_WRITER_H_
