// vector_writer.h — many environments, each with columns of its own, over one way to the server.
//
// Each environment is a TrajectoryWriterImpl. What they hand over in the course of a call is gathered, and
// goes to the sink at its end, in one piece: so a step of all of them is one message rather than many.
//
// All that can be wrong with a call is found before the first environment is touched, or by the first that
// is. Threads: one at a time.
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

  // All as in reverb/vector_writer.h.
  Status Append(std::span<const ColumnValue> values, EnvironmentMask mask);
  Result<std::vector<uint8_t>> CreateItems(std::string_view table, std::span<const double> priorities,
                                           std::span<const VectorItemColumn> columns, EnvironmentMask mask,
                                           const ItemStructure& structure = {});
  Status EndEpisode(EnvironmentMask mask);
  Status Flush(int64_t block_until_num_items, const WaitOptions& wait);
  int64_t Close();
  Status NameColumn(uint32_t column, std::string path);

  bool may_wait() const { return sink_->may_wait(); }
  size_t num_environments() const { return environments_.size(); }
  const TrajectoryWriterImpl& environment(size_t i) const { return environments_[i]; }

 private:
  // What a call has made so far, and what the environments see of the sink meanwhile.
  struct Gathered {
    std::vector<Item> items;
    std::vector<uint64_t> forgotten;  // chunks; later than all the items
    Status health;                    // the sink's, at the beginning of the call
  };
  class Share;
  struct Column {
    std::string path;
    bool known = false;  // the rest is
    DType dtype = DType::kFloat32;
    std::vector<int64_t> dims;
  };

  // The beginning and the end of each call that writes.
  Status Begin(EnvironmentMask mask);
  Status HandOver();

  std::string Describe(uint32_t column) const;
  Status CheckValues(std::span<const ColumnValue> values) const;
  void LearnColumns(std::span<const ColumnValue> values);
  // Points rows_ at the rows of the environment.
  void PointAt(std::span<const ColumnValue> values, size_t environment);
  Status AppendRows(std::span<const ColumnValue> values, EnvironmentMask mask);

  Status CheckItems(std::span<const double> priorities, std::span<const VectorItemColumn> columns) const;
  // Fills item_columns_ with what `columns` means in an environment; false when its episode is too short.
  bool Choose(const TrajectoryWriterImpl& environment, std::span<const VectorItemColumn> columns);
  Status PrepareItems(std::string_view table, std::span<const double> priorities,
                      std::span<const VectorItemColumn> columns, EnvironmentMask mask);
  Status WaitForRoom();
  // Completes the chunks of all but the newest `keep` items of each environment that wait.
  Status FinishWaiting(size_t keep);
  int64_t waiting_items() const;

  const std::unique_ptr<ItemSink> sink_;
  const WaitOptions wait_for_room_;
  Gathered gathered_;
  std::deque<TrajectoryWriterImpl> environments_;
  std::vector<Column> columns_;
  bool is_closed_ = false;

  // Reused from call to call.
  std::vector<ColumnValue> rows_;
  std::vector<CellRange> cells_;
  std::vector<ItemColumn> item_columns_;
  std::vector<size_t> prepared_;  // environments that are to get an item
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_VECTOR_WRITER_H_
