// Implements the handles of include/reverb/table.h on top of the engine.
#include "reverb/table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "client/column_store.h"
#include "core/chunk_store.h"
#include "core/extensions/insert_on_sample.h"
#include "core/fetch_samples.h"
#include "core/table.h"
#include "reverb/extensions.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"
#include "tensor/trajectory.h"

namespace reverb {
namespace {

// Encodes one tensor [rows, …] and appends it to *payload.
Result<internal::ColumnHeader> EncodeColumn(const TensorView& tensor, size_t index, uint32_t rows,
                                            Compression compression, std::vector<uint8_t>* payload) {
  std::vector<uint32_t> row_shape;
  for (const int64_t dim : tensor.dims.subspan(1)) {
    if (dim < 0 || dim > UINT32_MAX) {
      return Status::InvalidArgument("column " + std::to_string(index) + ": dimension " +
                                     std::to_string(dim) + " is out of range");
    }
    row_shape.push_back(static_cast<uint32_t>(dim));
  }
  internal::ColumnEncoder encoder(tensor.dtype, std::move(row_shape), internal::PolicyOf(compression));
  return tensor.dtype == DType::kString ? encoder.EncodeStrings(tensor.strings(), rows, payload)
                                        : encoder.Encode(tensor.bytes(), rows, payload);
}

// Brings the data of items into memory. Leaves out those whose data is lost, or cannot be read for now: the tier logs why.
void FetchAll(const std::shared_ptr<internal::ConcurrentTable>& table, std::vector<internal::Sample>* items) {
  if (internal::ChunkTier* const tier = table->store()->tier()) {
    *items = internal::FetchSamplesAndWait(tier, table, std::move(*items)).samples;
  }
}

}  // namespace

// --- Store and ChunkHandle ---

Store::Store(const StoreOptions& options)
    : store_(std::make_shared<internal::ChunkStore>(internal::ChunkStore::Options{
          .max_bytes = options.max_bytes,
          .policy =
              options.evict_when_full ? internal::MemoryPolicy::kEvict : internal::MemoryPolicy::kBlock})) {}

Result<ChunkHandle> Store::AddChunk(const Origin& origin, std::span<const TensorView> columns,
                                    Compression compression) {
  if (columns.empty()) return Status::InvalidArgument("a chunk needs at least one column");
  std::optional<int64_t> rows;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].dims.empty() || columns[i].dims[0] < 1 || columns[i].dims[0] > UINT32_MAX) {
      return Status::InvalidArgument("column " + std::to_string(i) +
                                     ": the first dimension is time and must be at least 1");
    }
    if (rows && *rows != columns[i].dims[0]) {
      return Status::InvalidArgument("column " + std::to_string(i) + " has " +
                                     std::to_string(columns[i].dims[0]) + " steps but column 0 has " +
                                     std::to_string(*rows) +
                                     "; the columns of a chunk must be of the same length");
    }
    rows = columns[i].dims[0];
  }
  constexpr int64_t kLastStep = std::numeric_limits<int64_t>::max() / 2;
  if (origin.first_step < -kLastStep || origin.first_step > kLastStep) {
    return Status::InvalidArgument("first_step " + std::to_string(origin.first_step) + " is out of range");
  }
  internal::ChunkHeader header{.episode_id = origin.episode_id,
                               .first_step = origin.first_step,
                               .last_step = origin.first_step + *rows - 1,
                               .rows = static_cast<uint32_t>(*rows)};
  std::vector<uint8_t> payload;
  for (size_t i = 0; i < columns.size(); ++i) {
    REVERB_ASSIGN_OR_RETURN(internal::ColumnHeader column,
                            EncodeColumn(columns[i], i, header.rows, compression, &payload));
    header.columns.push_back(std::move(column));
  }
  REVERB_ASSIGN_OR_RETURN(internal::ChunkRef chunk, store_->Add(header, payload));
  return ChunkHandle(std::make_shared<const internal::ChunkRef>(std::move(chunk)));
}

Store::Stats Store::stats() const {
  const internal::ChunkStore::Stats stats = store_->stats();
  return {
      .live_chunks = stats.live_chunks, .live_bytes = stats.live_bytes, .stored_bytes = stats.stored_bytes};
}

uint32_t ChunkHandle::num_rows() const { return (*ref_)->header().rows(); }
uint32_t ChunkHandle::num_columns() const { return (*ref_)->header().num_columns(); }
int64_t ChunkHandle::stored_bytes() const { return (*ref_)->bytes(); }

// --- Table ---

Result<Table> Table::Create(TableOptions options, const Store& store) {
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::ConcurrentTable> table,
                          internal::ConcurrentTable::Create(std::move(options), {.store = store.store_}));
  return Table(std::move(table));
}

const std::string& Table::name() const { return table_->name(); }

Status Table::Insert(const NewItem& item, Timeout timeout) {
  std::vector<internal::ColumnSpec> columns;
  for (const Column& column : item.columns) {
    internal::ColumnSpec& spec = columns.emplace_back();
    spec.squeeze = column.squeeze;
    for (const Slice& slice : column.slices) {
      spec.slices.push_back({*slice.chunk.ref_, slice.column, slice.offset, slice.length});
    }
  }
  REVERB_ASSIGN_OR_RETURN(internal::Trajectory trajectory, internal::Trajectory::Create(columns));
  return table_->Insert({.key = item.key, .priority = item.priority, .trajectory = std::move(trajectory)},
                        {.timeout = timeout});
}

Result<std::vector<SampledTrajectory>> Table::Sample(int64_t n, Timeout timeout,
                                                     std::vector<SampledTrajectory>* partial) {
  std::vector<internal::Sample> drawn;
  Status status = table_->Sample(n, /*allow_partial=*/false, {.timeout = timeout}, &drawn);
  while (internal::ChunkTier* const tier = table_->store()->tier()) {
    internal::FetchedSamples fetched = internal::FetchSamplesAndWait(tier, table_, std::move(drawn));
    drawn = std::move(fetched.samples);
    if (!fetched.status.ok()) status = std::move(fetched.status);
    if (!status.ok() || fetched.lost == 0) break;
    status = table_->Sample(fetched.lost, /*allow_partial=*/false, {.timeout = timeout}, &drawn);
  }
  std::vector<SampledTrajectory> samples;
  samples.reserve(drawn.size());
  for (internal::Sample& sample : drawn) samples.push_back(SampledTrajectory(std::move(sample)));
  if (status.ok()) return samples;
  if (partial) *partial = std::move(samples);
  return status;
}

Status Table::UpdatePriorities(std::span<const KeyPriority> updates) { return table_->Mutate(updates, {}); }
Status Table::Delete(std::span<const uint64_t> keys) { return table_->Mutate({}, keys); }
void Table::Reset() { table_->Reset(); }
Status Table::SetRateLimiter(const RateLimiterOptions& options) { return table_->SetRateLimiter(options); }
Status Table::Change(const TableChanges& changes) { return table_->Change(changes); }
void Table::Close() { table_->Close(); }
TableInfo Table::Info() const { return table_->Info(); }
int64_t Table::size() const { return table_->size(); }
Result<bool> Table::CanInsert(int64_t n) const { return table_->CanInsert(n); }
Result<bool> Table::CanSample(int64_t n) const { return table_->CanSample(n); }

std::optional<SampledTrajectory> Table::Find(uint64_t key) const {
  std::optional<internal::Sample> item = table_->Find(key);
  if (!item) return std::nullopt;
  std::vector<internal::Sample> items;
  items.push_back(*std::move(item));
  FetchAll(table_, &items);
  if (items.empty()) return std::nullopt;
  return SampledTrajectory(std::move(items.front()));
}

std::vector<SampledTrajectory> Table::Peek(int64_t n) const {
  std::vector<SampledTrajectory> looks;
  constexpr int64_t kPage = 1024;  // per acquisition of the lock
  uint64_t cursor = 0;
  for (int64_t left = n; left > 0;) {
    std::vector<internal::Sample> page = table_->Peek(std::min(left, kPage), &cursor);
    if (page.empty()) break;
    left -= static_cast<int64_t>(page.size());
    FetchAll(table_, &page);
    for (internal::Sample& item : page) looks.push_back(SampledTrajectory(std::move(item)));
  }
  return looks;
}

// --- Extensions ---

Result<std::shared_ptr<InsertOnSampleExtension>> MakeInsertOnSample(const Table& target, Timeout timeout) {
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<InsertOnSampleExtension> extension,
                          internal::MakeInsertOnSample(target.table_, {.timeout = timeout}));
  return extension;
}

}  // namespace reverb
