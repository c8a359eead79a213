// table.h — tables inside your own process.
//
//   reverb::Store store;
//   auto table = reverb::Table::Create({.name = "replay"}, store).value();
//   auto chunk = store.AddChunk({.episode_id = 1}, columns).value();         // tensors, time first
//   auto inserted = table.Insert({.key = 7, .columns = {{.slices = {{chunk, 0, 0, 3}}}}});   // a Status
//   auto samples = table.Sample(1).value();
//   reverb::Tensor obs = samples[0].column(0).value();
//
// A Store holds chunks: runs of steps, encoded once. Items of all tables created with that store refer to
// rows of its chunks and share them. A chunk is freed with the last item, sample or handle that refers to it.
//
// Store, ChunkHandle and Table are handles: copies are cheap and refer to the same object. Threads: all
// methods may be called concurrently.
#ifndef REVERB_TABLE_H_
#define REVERB_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverb/compression.h"
#include "reverb/item.h"
#include "reverb/rate_limiter.h"
#include "reverb/sampled_trajectory.h"
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
struct TableFactory;
}  // namespace internal

class InsertOnSampleExtension;

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
  // Bounds the bytes of chunks that items refer to; at least 1, absent = unbounded.
  std::optional<int64_t> max_bytes = {};
  // Whether an insert above the bound evicts items of its table. Otherwise it waits until items are removed.
  bool evict_when_full = false;
};

// Keeps part of the data of a server on disk. The data that was used least recently moves to files, and is read back when
// it is sampled. Row tables stay in memory. The files are a cache: a server removes those of an earlier one.
struct StorageOptions {
  // A folder for the files, on a fast disk; created if it is missing. Each server needs its own.
  std::string path = {};
  // The bytes of data that are kept in memory; part of ServerOptions::memory_limit, which also covers everything else.
  // Absent: three quarters of what that leaves for data.
  std::optional<int64_t> memory_limit = {};
  // The bytes that the files may take; about 70 % of them can be data. Absent: 80 % of the space that is free when the
  // server starts.
  std::optional<int64_t> disk_limit = {};
};

class Store {
 public:
  struct Stats {
    int64_t live_chunks = 0;
    int64_t live_bytes = 0;    // memory of all chunks
    int64_t stored_bytes = 0;  // memory of the chunks that items refer to, each counted once
  };
  // The episode and the step of a chunk's first row.
  struct Origin {
    uint64_t episode_id = 0;
    int64_t first_step = 0;
  };

  explicit Store(const StoreOptions& options = {});

  // Encodes tensors whose first dimension is time. All must have the same number of steps.
  Result<ChunkHandle> AddChunk(const Origin& origin, std::span<const TensorView> columns,
                               Compression compression = Compression::kAuto);
  Stats stats() const;

 private:
  friend class Table;
  std::shared_ptr<internal::ChunkStore> store_;
};

// Names rows [offset, offset + length) of one column of a chunk.
struct Slice {
  ChunkHandle chunk;
  uint32_t column = 0;
  uint32_t offset = 0;
  uint32_t length = 1;
};
struct Column {
  std::vector<Slice> slices = {};
  bool squeeze = false;  // exactly one row, sampled without the time dimension
};
struct NewItem {
  uint64_t key = 0;
  double priority = 1.0;
  std::vector<Column> columns = {};
};

class Table {
 public:
  static Result<Table> Create(TableOptions options, const Store& store);

  const std::string& name() const;

  // Waits while the rate limiter or the store's memory bound does not allow the insert. If the key is
  // present, its item gets the new priority and keeps its data.
  Status Insert(const NewItem& item, Timeout timeout = {});
  // Returns exactly n samples or an error. After a timeout, *partial (if given) holds the samples drawn so
  // far.
  Result<std::vector<SampledTrajectory>> Sample(int64_t n, Timeout timeout = {},
                                                std::vector<SampledTrajectory>* partial = nullptr);

  // Ignores unknown keys. If a selector rejects one of the priorities, nothing is updated.
  Status UpdatePriorities(std::span<const KeyPriority> updates);
  Status Delete(std::span<const uint64_t> keys);

  void Reset();
  Status SetRateLimiter(const RateLimiterOptions& options);
  // Changes limits while the table is in use. Items beyond a smaller max_size are evicted.
  Status Change(const TableChanges& changes);
  // Ends all present and future waits with CANCELLED.
  void Close();

  TableInfo Info() const;
  int64_t size() const;
  Result<bool> CanInsert(int64_t n) const;
  Result<bool> CanSample(int64_t n) const;
  // Find() and Peek() do not count as sampling.
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
