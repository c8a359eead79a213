// The handles of include/reverb/writer.h and vector_writer.h.
#include <utility>

#include "api/writer_factory.h"
#include "client/legacy_writer.h"
#include "client/structured_writer.h"
#include "client/trajectory_writer.h"
#include "client/vector_writer.h"
#include "reverb/vector_writer.h"
#include "reverb/writer.h"

namespace reverb {

// --- TrajectoryWriter ---

TrajectoryWriter::TrajectoryWriter(std::unique_ptr<internal::TrajectoryWriterImpl> impl)
    : impl_(std::move(impl)) {}
TrajectoryWriter::TrajectoryWriter(TrajectoryWriter&&) noexcept = default;
TrajectoryWriter& TrajectoryWriter::operator=(TrajectoryWriter&&) noexcept = default;
TrajectoryWriter::~TrajectoryWriter() = default;

Status TrajectoryWriter::Append(std::span<const ColumnValue> values) { return impl_->Append(values); }
Status TrajectoryWriter::AppendPartial(std::span<const ColumnValue> values) {
  return impl_->AppendPartial(values);
}
Status TrajectoryWriter::AppendSequence(std::span<const ColumnValue> values) {
  return impl_->AppendSequence(values);
}
Status TrajectoryWriter::CreateItem(std::string_view table, double priority,
                                    std::span<const ItemColumn> columns, const ItemStructure& structure) {
  return impl_->CreateItem(table, priority, columns, structure);
}
Status TrajectoryWriter::CreateItem(std::string_view table, double priority,
                                    std::span<const NamedColumn> columns) {
  return impl_->CreateItem(table, priority, columns);
}
Status TrajectoryWriter::Flush(int64_t block_until_num_items, const WaitOptions& wait) {
  return impl_->Flush(block_until_num_items, wait);
}
Status TrajectoryWriter::EndEpisode(bool clear, const WaitOptions& wait) {
  return impl_->EndEpisode(clear, wait);
}
int64_t TrajectoryWriter::Close() { return impl_->Close(); }
Status TrajectoryWriter::Configure(uint32_t column, const ChunkingOptions& options) {
  return impl_->Configure(column, options);
}
Status TrajectoryWriter::NameColumn(uint32_t column, std::string path) {
  return impl_->NameColumn(column, std::move(path));
}
bool TrajectoryWriter::may_wait() const { return impl_->sink().may_wait(); }
int64_t TrajectoryWriter::position() const { return impl_->columns().position(); }
bool TrajectoryWriter::step_is_open() const { return impl_->columns().step_is_open(); }
int64_t TrajectoryWriter::episode_steps() const { return impl_->episode_steps(); }
int64_t TrajectoryWriter::history_length() const { return impl_->history_length(); }
uint32_t TrajectoryWriter::num_columns() const { return impl_->columns().num_columns(); }
std::optional<TensorSpec> TrajectoryWriter::column_spec(uint32_t column) const {
  const internal::ColumnStore& columns = impl_->columns();
  if (!columns.is_known(column)) return std::nullopt;
  return TensorSpec{
      .name = columns.path(column), .dtype = columns.dtype(column), .shape = Shape(columns.dims(column))};
}
int64_t TrajectoryWriter::num_keep_alive_refs() const { return impl_->columns().max_keep_alive_refs(); }
int64_t TrajectoryWriter::num_keep_alive_refs(uint32_t column) const {
  return impl_->columns().keep_alive_refs(column);
}
bool TrajectoryWriter::HasCell(uint32_t column, int64_t position) const {
  return impl_->columns().HasCell(column, position);
}
Result<Tensor> TrajectoryWriter::Read(uint32_t column, int64_t position) const {
  return impl_->columns().Read(column, position);
}
Result<std::vector<CellRange>> TrajectoryWriter::Stack(uint32_t column, int64_t rows,
                                                       std::optional<int64_t> end) const {
  return impl_->columns().Stack(column, rows, end);
}

// --- StructuredWriter ---

StructuredWriter::StructuredWriter(std::unique_ptr<internal::StructuredWriterImpl> impl)
    : impl_(std::move(impl)) {}
StructuredWriter::StructuredWriter(StructuredWriter&&) noexcept = default;
StructuredWriter& StructuredWriter::operator=(StructuredWriter&&) noexcept = default;
StructuredWriter::~StructuredWriter() = default;

Status StructuredWriter::Append(std::span<const std::optional<TensorView>> leaves) {
  return impl_->Append(leaves);
}
Status StructuredWriter::AppendPartial(std::span<const std::optional<TensorView>> leaves) {
  return impl_->AppendPartial(leaves);
}
Status StructuredWriter::Flush(int64_t block_until_num_items, const WaitOptions& wait) {
  return impl_->Flush(block_until_num_items, wait);
}
Status StructuredWriter::EndEpisode(bool clear, const WaitOptions& wait) {
  return impl_->EndEpisode(clear, wait);
}
int64_t StructuredWriter::Close() { return impl_->Close(); }
bool StructuredWriter::step_is_open() const { return impl_->step_is_open(); }
bool StructuredWriter::may_wait() const { return impl_->may_wait(); }

// --- VectorWriter ---

VectorWriter::VectorWriter(std::unique_ptr<internal::VectorWriterImpl> impl) : impl_(std::move(impl)) {}
VectorWriter::VectorWriter(VectorWriter&&) noexcept = default;
VectorWriter& VectorWriter::operator=(VectorWriter&&) noexcept = default;
VectorWriter::~VectorWriter() = default;

Status VectorWriter::Append(std::span<const ColumnValue> values, EnvironmentMask mask) {
  return impl_->Append(values, mask);
}
Status VectorWriter::AppendPartial(std::span<const ColumnValue> values, EnvironmentMask mask) {
  return impl_->AppendPartial(values, mask);
}
Result<std::vector<uint8_t>> VectorWriter::CreateItems(std::string_view table,
                                                       std::span<const double> priorities,
                                                       std::span<const VectorItemColumn> columns,
                                                       EnvironmentMask mask, const ItemStructure& structure) {
  return impl_->CreateItems(table, priorities, columns, mask, structure);
}
Status VectorWriter::EndEpisode(EnvironmentMask mask) { return impl_->EndEpisode(mask); }
Status VectorWriter::Flush(int64_t block_until_num_items, const WaitOptions& wait) {
  return impl_->Flush(block_until_num_items, wait);
}
int64_t VectorWriter::Close() { return impl_->Close(); }
Status VectorWriter::Configure(uint32_t column, const ChunkingOptions& options) {
  return impl_->Configure(column, options);
}
Status VectorWriter::NameColumn(uint32_t column, std::string path) {
  return impl_->NameColumn(column, std::move(path));
}
bool VectorWriter::may_wait() const { return impl_->may_wait(); }
int64_t VectorWriter::unconfirmed_items() const { return impl_->unconfirmed_items(); }
int64_t VectorWriter::num_environments() const { return static_cast<int64_t>(impl_->num_environments()); }
int64_t VectorWriter::episode_steps(int64_t environment) const {
  return impl_->environment(static_cast<size_t>(environment)).episode_steps();
}

// --- Writer ---

Writer::Writer(std::unique_ptr<internal::LegacyWriter> impl) : impl_(std::move(impl)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Status Writer::Append(std::span<const TensorView> step) { return impl_->Append(step); }
Status Writer::AppendSequence(std::span<const TensorView> sequence) {
  return impl_->AppendSequence(sequence);
}
Status Writer::CreateItem(std::string_view table, int64_t num_timesteps, double priority,
                          const ItemStructure& structure) {
  return impl_->CreateItem(table, num_timesteps, priority, structure);
}
Status Writer::Flush(const WaitOptions& wait) { return impl_->Flush(wait); }
Status Writer::EndEpisode(const WaitOptions& wait) { return impl_->EndEpisode(wait); }
Status Writer::Close(const WaitOptions& wait) { return impl_->Close(wait); }
bool Writer::is_closed() const { return impl_->is_closed(); }
int64_t Writer::unconfirmed_items() const { return impl_->unconfirmed_items(); }

// --- WriterFactory ---

namespace internal {
namespace {

template <typename Options>
Status CheckOrClose(const Options& options, ItemSink* sink) {
  Status status = options.Validate();
  if (!status.ok()) sink->Close();
  return status;
}

}  // namespace

Result<reverb::TrajectoryWriter> WriterFactory::MakeTrajectoryWriter(std::unique_ptr<ItemSink> sink,
                                                                     const TrajectoryWriterOptions& options) {
  REVERB_RETURN_IF_ERROR(CheckOrClose(options, sink.get()));
  return reverb::TrajectoryWriter(std::make_unique<TrajectoryWriterImpl>(options, std::move(sink)));
}

Result<reverb::StructuredWriter> WriterFactory::MakeStructuredWriter(std::unique_ptr<ItemSink> sink,
                                                                     StructuredWriterOptions options) {
  REVERB_RETURN_IF_ERROR(CheckOrClose(options, sink.get()));
  return reverb::StructuredWriter(
      std::make_unique<StructuredWriterImpl>(std::move(options), std::move(sink)));
}

Result<reverb::VectorWriter> WriterFactory::MakeVectorWriter(std::unique_ptr<ItemSink> sink,
                                                             const VectorWriterOptions& options) {
  REVERB_RETURN_IF_ERROR(CheckOrClose(options, sink.get()));
  return reverb::VectorWriter(std::make_unique<VectorWriterImpl>(options, std::move(sink)));
}

Result<reverb::Writer> WriterFactory::MakeWriter(std::unique_ptr<ItemSink> sink,
                                                 const WriterOptions& options) {
  REVERB_RETURN_IF_ERROR(CheckOrClose(options, sink.get()));
  return reverb::Writer(std::make_unique<LegacyWriter>(options, std::move(sink)));
}

}  // namespace internal
}  // namespace reverb
