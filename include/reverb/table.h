// table.h — tables inside your own process.
//
//   reverb::Store store;
//   auto table = reverb::Table::Create({.name = "replay"}, store).value();
//   auto chunk = store.AddChunk({.episode_id = 1}, columns).value();         // tensors, time first
//   table.Insert({.key = 7, .priority = 1.0, .columns = {{.slices = {{chunk, 0, 0, 3}}}}});
//   auto samples = table.Sample(1).value();
//   reverb::Tensor obs = samples[0].column(0).value();
//
// A Store keeps chunks: runs of steps, encoded once. Items of any table made with that store refer
// to rows of its chunks and share them. A chunk goes when the last item, sample or handle that
// refers to it goes.
//
// Store, ChunkHandle, Table and SampledTrajectory are handles: copying one is cheap and refers to the same
// thing. Threads: everything may be called concurrently.
#ifndef REVERB_TABLE_H_
#define REVERB_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverb/item.h"
#include "reverb/rate_limiter.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "reverb/table_options.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"

namespace reverb {

namespace internal {
class ChunkRef;
class ChunkStore;
class ConcurrentTable;
struct Sample;
struct SampleFactory;
struct TableFactory;
}  // namespace internal

class InsertOnSampleExtension;

// How a column's bytes are kept. `kAuto` looks at the data: raw if it does not compress, otherwise
// LZ4, on differences between steps where that pays.
enum class Compression : uint8_t { kAuto, kNone, kLz4, kZstd, kSnappy };

class ChunkHandle {
 public:
  uint32_t num_rows() const;
  uint32_t num_columns() const;
  int64_t stored_bytes() const;

 private:
  friend class Store;
  friend class Table;
  explicit ChunkHandle(std::shared_ptr<const internal::ChunkRef> ref) : ref_(std::move(ref)) {}
  std::shared_ptr<const internal::ChunkRef> ref_;
};

struct StoreOptions {
  // Bound on the bytes of chunks that items refer to; absent = unbounded. Tables need at least 1.
  std::optional<int64_t> max_bytes = {};
  // What an insert does beyond it: wait until items go (and say so), or evict items of its table.
  bool evict_when_full = false;
};

class Store {
 public:
  struct Stats {
    int64_t live_chunks = 0;
    int64_t live_bytes = 0;    // all memory that chunks take
    int64_t stored_bytes = 0;  // of chunks that items refer to, each counted once
  };
  // Where a chunk's rows come from.
  struct Origin {
    uint64_t episode_id = 0;
    int64_t first_step = 0;
  };

  explicit Store(const StoreOptions& options = {});

  // Encodes tensors whose first dimension is time, of the same length in all of them.
  Result<ChunkHandle> AddChunk(const Origin& origin, std::span<const TensorView> columns,
                               Compression compression = Compression::kAuto);
  Stats stats() const;

 private:
  friend class Table;
  std::shared_ptr<internal::ChunkStore> store_;
};

// Rows [offset, offset + length) of one column of a chunk.
struct Slice {
  ChunkHandle chunk;
  uint32_t column = 0;
  uint32_t offset = 0;
  uint32_t length = 1;
};
struct Column {
  std::vector<Slice> slices = {};
  bool squeeze = false;  // exactly one row, handed out without the time dimension
};
struct NewItem {
  uint64_t key = 0;
  double priority = 1.0;
  std::vector<Column> columns = {};
};

// An item that was sampled or looked at, with its data.
class SampledTrajectory {
 public:
  uint64_t key() const;
  double priority() const;
  double probability() const;     // of having been picked; 0 when only looked at
  int64_t table_size() const;     // when it was picked
  int32_t times_sampled() const;  // this sample included
  // When the item was inserted, by the clock of the table's host, since the Unix epoch.
  int64_t inserted_at_nanos() const;

  uint32_t num_columns() const;
  // REQUIRES: index < num_columns().
  bool is_squeezed(uint32_t index) const;
  // The rows of a column, decoded: [time, …], or […] when it is squeezed.
  Result<Tensor> column(uint32_t index) const { return Decode(index, nullptr); }
  // The same in memory of a pool.
  Result<Tensor> column(uint32_t index, const TensorPool& pool) const { return Decode(index, &pool); }
  // What its columns take when decoded; strings are not counted.
  size_t decoded_bytes() const;

 private:
  friend class Table;
  friend struct internal::SampleFactory;
  explicit SampledTrajectory(internal::Sample sample);
  Result<Tensor> Decode(uint32_t index, const TensorPool* pool) const;
  std::shared_ptr<const internal::Sample> sample_;
};

class Table {
 public:
  static Result<Table> Create(TableOptions options, const Store& store);

  const std::string& name() const;

  // Waits as long as the rate limiter, or the store's memory bound, does not allow it. A key that is
  // present gets the new priority and keeps its data.
  Status Insert(const NewItem& item, Timeout timeout = {});
  // Exactly n samples, or an error: on a time-out, what was drawn is in *partial if given.
  Result<std::vector<SampledTrajectory>> Sample(int64_t n, Timeout timeout = {},
                                                std::vector<SampledTrajectory>* partial = nullptr);

  // Keys that are not there are ignored. A priority that a selector refuses fails the call as a whole.
  Status UpdatePriorities(std::span<const KeyPriority> updates);
  Status Delete(std::span<const uint64_t> keys);

  void Reset();
  Status SetRateLimiter(const RateLimiterOptions& options);
  // Ends all waits, now and later, with CANCELLED.
  void Close();

  TableInfo Info() const;
  int64_t size() const;
  Result<bool> CanInsert(int64_t n) const;
  Result<bool> CanSample(int64_t n) const;
  // Neither counts as sampling.
  std::optional<SampledTrajectory> Find(uint64_t key) const;
  std::vector<SampledTrajectory> Peek(int64_t n) const;

 private:
  explicit Table(std::shared_ptr<internal::ConcurrentTable> table) : table_(std::move(table)) {}
  friend struct internal::TableFactory;
  friend Result<std::shared_ptr<InsertOnSampleExtension>> MakeInsertOnSample(const Table& target,
                                                                             Timeout timeout);
  std::shared_ptr<internal::ConcurrentTable> table_;
};

}  // namespace reverb

#endif  // REVERB_TABLE_H_
