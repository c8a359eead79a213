// vector_writer.h — one call writes one step of many environments.
//
//   using namespace reverb;
//   const ChunkingOptions chunking{.num_keep_alive_refs = 3};
//   auto writer = client.NewVectorWriter({.num_environments = 64, .chunking = chunking}).value();
//   const StepRange last3{.column = 0, .begin = -3}, newest = StepRange::One(1, -1);
//   const std::array columns{VectorItemColumn{{&last3, 1}}, VectorItemColumn{{&newest, 1}, true}};
//   for (int step = 0; step < 100; ++step) {
//     // Both tensors have the shape [64, …].
//     Status status = writer.Append(std::array{ColumnValue{0, obs.view()}, ColumnValue{1, action.view()}});
//     auto created = writer.CreateItems("replay", std::array{1.0}, columns);  // a mask of the environments
//     if (status.ok()) status = writer.EndEpisode(is_done);
//   }
//   Status confirmed = writer.Flush();
//
// Every environment has its own episode, steps and chunks, as if it had its own TrajectoryWriter (writer.h
// defines the terms); all share one connection, its window and its order. Items of one environment arrive in
// the order of their creation.
//
// A call that fails has no effect, unless the connection or a memory allocation fails: then the writer cannot
// be used any more. Threads: one at a time. Ownership: a writer copies its arguments.
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

#include "reverb/compression.h"
#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb {

namespace internal {
class VectorWriterImpl;
}  // namespace internal

// One value per environment; a call applies to those with a nonzero value. Empty: it applies to all.
using EnvironmentMask = std::span<const uint8_t>;

struct VectorWriterOptions {
  static constexpr int64_t kMaxEnvironments = int64_t{1} << 16;

  int64_t num_environments = 1;
  // Applies to all columns without a Configure() call, in each environment.
  ChunkingOptions chunking = {};
  Compression compression = Compression::kAuto;
  // If given, CreateItems() checks every item against its table's signature.
  std::shared_ptr<SignatureSource> signatures = {};
  // How long CreateItems() may wait while too many bytes are unconfirmed. After that it fails without
  // creating items.
  WaitOptions wait_for_room = {};
  // Seed of item keys and episode ids; absent: from the system's entropy.
  std::optional<uint64_t> seed = {};

  [[nodiscard]] Status Validate() const;
};

// Steps of a column, the same in every environment: begin, begin + stride, … up to but excluding end.
// Negative positions count from the environment's newest step, which is -1; others from the first step of its
// episode, which is 0. Absent positions mean the ends of the episode.
struct StepRange {
  uint32_t column = 0;
  std::optional<int64_t> begin = {};
  std::optional<int64_t> end = {};
  int64_t stride = 1;
  // If not 0, the range is the `stack` steps before `end`: `begin` must be absent and the stride 1. Steps
  // before the first one of the episode are replaced by it.
  int64_t stack = 0;

  static StepRange One(uint32_t column, int64_t position) {
    const bool is_last = position == -1 || position == std::numeric_limits<int64_t>::max();
    return {column, position, is_last ? std::nullopt : std::optional(position + 1), 1};
  }
  // Stacks the `rows` steps before `end`; absent: up to the newest step.
  static StepRange Stack(uint32_t column, int64_t rows, std::optional<int64_t> end = {}) {
    return {.column = column, .end = end, .stack = rows};
  }
};

// One column of the items: rows in the order of the ranges, all of the same dtype and shape.
struct VectorItemColumn {
  std::span<const StepRange> steps;
  bool squeeze = false;  // exactly one row, sampled without the time dimension
};

class VectorWriter {
 public:
  VectorWriter(VectorWriter&&) noexcept;
  VectorWriter& operator=(VectorWriter&&) noexcept;
  // Like TrajectoryWriter's.
  ~VectorWriter();

  // Adds a step to each environment of the mask. The first dimension of each value is the environment: it has
  // num_environments() rows regardless of the mask, and row i goes to environment i. Columns that are left
  // out have no cell at this step. INVALID_ARGUMENT for another first dimension, and if the dtype or shape of
  // a value differs from its column's. Does not wait for confirmations.
  Status Append(std::span<const ColumnValue> values, EnvironmentMask mask = {});
  // Like Append(), but leaves the steps open: the next calls for these environments add columns to them, until
  // an Append() closes them. Items may refer to open steps.
  Status AppendPartial(std::span<const ColumnValue> values, EnvironmentMask mask = {});

  // Creates an item in each environment of the mask whose episode has all the steps that `columns` name;
  // skips environments whose episode is still too short. Returns a mask of the created items. `priorities`:
  // one for all, or one per environment. INVALID_ARGUMENT if a step exists but has no value or has expired,
  // and for a range that cannot name a step of any episode. Waits only while too many bytes are unconfirmed.
  // `structure`: as for TrajectoryWriter::CreateItem().
  Result<std::vector<uint8_t>> CreateItems(std::string_view table, std::span<const double> priorities,
                                           std::span<const VectorItemColumn> columns,
                                           EnvironmentMask mask = {}, const ItemStructure& structure = {});

  // Ends the episodes of these environments: completes the chunks of their items and expires all their cells.
  // Does not wait for confirmations, since the other environments continue.
  Status EndEpisode(EnvironmentMask mask = {});

  // Completes the chunks of all items except the newest `block_until_num_items`, of which each environment
  // has an equal share, and waits until at most that many are unconfirmed. After DEADLINE_EXCEEDED, sending
  // continues.
  Status Flush(int64_t block_until_num_items = 0, const WaitOptions& wait = {});

  // Like TrajectoryWriter's.
  int64_t Close();

  // Sets the chunking of one column in all environments, as TrajectoryWriter::Configure() does.
  // FAILED_PRECONDITION, and no effect, while some values of one environment are not in a chunk yet.
  Status Configure(uint32_t column, const ChunkingOptions& options);
  // Sets the name of the column in error messages, which otherwise use its number.
  Status NameColumn(uint32_t column, std::string path);

  // Like TrajectoryWriter's.
  bool may_wait() const;
  // Items that were created and are not confirmed yet: while there are at most n, Flush(n) returns at once.
  int64_t unconfirmed_items() const;
  int64_t num_environments() const;
  // The number of complete steps of the environment's episode. REQUIRES: environment < num_environments().
  int64_t episode_steps(int64_t environment) const;

 private:
  friend struct internal::WriterFactory;
  explicit VectorWriter(std::unique_ptr<internal::VectorWriterImpl> impl);
  std::unique_ptr<internal::VectorWriterImpl> impl_;
};

}  // namespace reverb

#endif  // REVERB_VECTOR_WRITER_H_
