// vector_writer.h — one call writes one step of many environments.
//
//   auto writer = client.NewVectorWriter({.num_environments = 64, .chunking = {.num_keep_alive_refs =
//   3}}).value(); for (...) {
//     writer.Append(std::array{ColumnValue{0, observations.view()}, ColumnValue{1, actions.view()}});  //
//     [64, …] const StepRange last3{.column = 0, .begin = -3}, newest = StepRange::One(1, -1);
//     writer.CreateItems("replay", std::array{1.0}, std::array{VectorItemColumn{{&last3, 1}},
//                                                              VectorItemColumn{{&newest, 1}, true}});
//     writer.EndEpisode(is_done);
//   }
//   writer.Flush();
//
// Every environment has an episode, steps and chunks of its own, as with a TrajectoryWriter each (writer.h
// has the words); the way to the server, its window and its order are shared. Items of one environment arrive
// in the order in which they were made.
//
// A call that fails has changed nothing, unless the way to the server or memory fails: then the writer cannot
// be used any more. Threads: one at a time. Ownership: a writer copies what it is given.
#ifndef REVERB_VECTOR_WRITER_H_
#define REVERB_VECTOR_WRITER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb {

namespace internal {
class VectorWriterImpl;
}  // namespace internal

// A value for each environment, 0 for those that a call is not meant for. Empty: it is meant for all.
using EnvironmentMask = std::span<const uint8_t>;

struct VectorWriterOptions {
  static constexpr int64_t kMaxEnvironments = int64_t{1} << 16;

  int64_t num_environments = 1;
  // For all columns, in each environment.
  ChunkingOptions chunking = {};
  Compression compression = Compression::kAuto;
  // When given, every item is checked against its table's signature when it is created.
  std::shared_ptr<const TableSignatures> signatures = {};
  // How long CreateItems() may wait when too many bytes are unconfirmed. No item is created when that is not
  // enough.
  WaitOptions wait_for_room = {};
  // Of item keys and episode ids; absent: from the system's entropy.
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

// Steps of a column, chosen in every environment alike: begin, begin + stride, … up to end, which is left
// out. Positions below zero count from the environment's newest step, which is -1; others from the first step
// of its episode, which is 0. Absent ones mean the ends of the episode.
struct StepRange {
  uint32_t column = 0;
  std::optional<int64_t> begin = {};
  std::optional<int64_t> end = {};
  int64_t stride = 1;

  static StepRange One(uint32_t column, int64_t position) {
    const bool is_last = position == -1 || position == std::numeric_limits<int64_t>::max();
    return {column, position, is_last ? std::nullopt : std::optional(position + 1), 1};
  }
};

// One column of the items: rows in the order of the ranges, all of one dtype and shape.
struct VectorItemColumn {
  std::span<const StepRange> steps;
  bool squeeze = false;  // exactly one row, handed out without the time dimension
};

class VectorWriter {
 public:
  VectorWriter(VectorWriter&&) noexcept;
  VectorWriter& operator=(VectorWriter&&) noexcept;
  // As TrajectoryWriter's.
  ~VectorWriter();

  // Adds a step to each environment of the mask. Each value has the environments as its first dimension, all
  // of them whatever the mask; row i goes to environment i. Columns that are left out have no cell at this
  // step. INVALID_ARGUMENT for a first dimension that is not num_environments(), and for a value of another
  // dtype or shape than the column's. May wait for nothing.
  Status Append(std::span<const ColumnValue> values, EnvironmentMask mask = {});

  // Makes an item in each environment of the mask whose episode has all the steps that `columns` name; those
  // whose episode is still too short are left out. Returns a mask of those that were made. `priorities`: one
  // for all, or one for each environment. INVALID_ARGUMENT when a step exists but has no value, or is no
  // longer kept, and for a range that names no step in any episode. Waits only when too many bytes are
  // unconfirmed. `structure`: as TrajectoryWriter's CreateItem().
  Result<std::vector<uint8_t>> CreateItems(std::string_view table, std::span<const double> priorities,
                                           std::span<const VectorItemColumn> columns,
                                           EnvironmentMask mask = {}, const ItemStructure& structure = {});

  // Ends the episodes of these environments: completes the chunks of their items, and all their cells expire.
  // Does not wait for anything to be confirmed: the other environments go on.
  Status EndEpisode(EnvironmentMask mask = {});

  // Completes the chunks that items need, except for the newest `block_until_num_items`, of which each
  // environment has the same share, and waits until at most that many are not confirmed. DEADLINE_EXCEEDED:
  // sending goes on.
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});

  // As TrajectoryWriter's.
  int64_t Close();

  // What error texts call the column; otherwise its number.
  Status NameColumn(uint32_t column, std::string path);

  // As TrajectoryWriter's.
  bool may_wait() const;
  int64_t num_environments() const;
  // Steps of the environment's episode. REQUIRES: environment < num_environments().
  int64_t episode_steps(int64_t environment) const;

 private:
  friend struct internal::WriterFactory;
  explicit VectorWriter(std::unique_ptr<internal::VectorWriterImpl> impl);
  std::unique_ptr<internal::VectorWriterImpl> impl_;
};

}  // namespace reverb

#endif  // REVERB_VECTOR_WRITER_H_
