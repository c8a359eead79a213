// Encodes and decodes the messages of row tables.
//
// What describes an operation and its rows has lists of fields. The data is encoded by the code for items and
// samples: a row that is written is an item, one that is read a sample with a column for each segment.
#include <string>
#include <utility>

#include "transport/wire.h"
#include "transport/wire_fields.h"
#include "transport/wire_internal.h"
#include "transport/wire_pieces.h"

namespace reverb::internal {
namespace {

constexpr uint32_t kSamplesField = 2;
constexpr uint32_t kCallField = 16;  // or the result
constexpr uint32_t kRowsField = 17;
constexpr uint32_t kRowsWithDataField = 18;

std::vector<RowTagRecord> ToRecords(const std::vector<RowTag>& tags) {
  std::vector<RowTagRecord> records;
  records.reserve(tags.size());
  for (const RowTag& tag : tags) {
    RowTagRecord& record = records.emplace_back();
    record.name = tag.name;
    record.kind = static_cast<uint32_t>(tag.value.index());
    if (const auto* flag = std::get_if<bool>(&tag.value)) record.integer = *flag ? 1 : 0;
    if (const auto* integer = std::get_if<int64_t>(&tag.value)) record.integer = *integer;
    if (const auto* real = std::get_if<double>(&tag.value)) record.real = *real;
    if (const auto* text = std::get_if<std::string>(&tag.value)) record.text = *text;
  }
  return records;
}

Status FromRecords(std::vector<RowTagRecord> records, std::vector<RowTag>* tags) {
  tags->reserve(records.size());
  for (RowTagRecord& record : records) {
    RowTag& tag = tags->emplace_back();
    tag.name = std::move(record.name);
    switch (record.kind) {
      case 0:
        tag.value = record.integer != 0;
        break;
      case 1:
        tag.value = record.integer;
        break;
      case 2:
        tag.value = record.real;
        break;
      case 3:
        tag.value = std::move(record.text);
        break;
      default:
        return Status::InvalidArgument("tag \"" + tag.name + "\" has a value of kind " + Number(record.kind) +
                                       ", which this version does not know");
    }
  }
  return Status::Ok();
}

void WriteRow(const RowHeader& header, WireWriter* writer) {
  const auto nested = writer->Begin(kRowsField);
  WriteFields(header, writer);
  writer->End(nested);
}

// The columns of a chunk with one row.
Result<Trajectory> WholeRow(const ChunkRef& chunk) {
  std::vector<ColumnSpec> columns(chunk->header().num_columns());
  for (uint32_t i = 0; i < columns.size(); ++i) {
    columns[i] = {.slices = {{.chunk = chunk, .chunk_column = i, .offset = 0, .length = 1}}, .squeeze = true};
  }
  return Trajectory::Create(columns);
}

// Returns the chunk of which the trajectory has all columns, with one row.
Result<ChunkRef> ChunkOf(const Trajectory& trajectory) {
  Chunk* const chunk = trajectory.slice(0, 0).chunk;
  bool is_whole = chunk->header().num_columns() == trajectory.num_columns() && chunk->header().rows() == 1;
  for (uint32_t i = 0; is_whole && i < trajectory.num_columns(); ++i) {
    const SliceView slice = trajectory.slice(i, 0);
    is_whole =
        trajectory.num_slices(i) == 1 && slice.chunk == chunk && slice.chunk_column == i && slice.length == 1;
  }
  if (is_whole) return ChunkRef::Share(chunk);
  return Status::InvalidArgument("the data of a row must be all columns of one chunk with one row");
}

}  // namespace

WireMessage EncodeRowsRequest(const RowsRequest& request) {
  InsertMessage data;
  std::vector<RowHeader> headers(request.rows.size());
  for (size_t i = 0; i < request.rows.size(); ++i) {
    const RowWrite& row = request.rows[i];
    headers[i].key = row.key;
    headers[i].group = row.group;
    headers[i].tags = ToRecords(row.tags);
    if (!row.chunk) continue;
    Result<Trajectory> trajectory = WholeRow(row.chunk);
    if (!trajectory.ok()) continue;  // the receiver reports that data is missing
    data.items.push_back(
        {.number = i + 1, .table = request.call.table, .trajectory = *std::move(trajectory)});
  }
  return InsertEncoder().EncodeWith(data, [&](WireWriter* writer) {
    const auto nested = writer->Begin(kCallField);
    WriteFields(request.call, writer);
    writer->End(nested);
    for (const RowHeader& header : headers) WriteRow(header, writer);
  });
}

Result<RowsRequest> DecodeRowsRequest(ByteSlices slices, const InsertDecoder::ChunkFactory& make_chunk,
                                      const WireLimits& limits) {
  constexpr std::string_view kName = "RowsRequest";
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  RowsRequest request;
  ClearFields(&request.call);
  while (reader.Next()) {
    if (reader.field() == kCallField) {
      REVERB_RETURN_IF_ERROR(ReadFields(reader.ReadMessage(), limits, &request.call));
    } else if (reader.field() == kRowsField) {
      if (request.rows.size() >= limits.max_items) return TooMany(kName, "rows", limits.max_items);
      RowHeader header;
      REVERB_RETURN_IF_ERROR(ReadNewFields(reader.ReadMessage(), limits, &header));
      RowWrite& row = request.rows.emplace_back();
      row.key = std::move(header.key);
      row.group = std::move(header.group);
      REVERB_RETURN_IF_ERROR(FromRecords(std::move(header.tags), &row.tags));
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  if (request.rows.empty()) return request;
  REVERB_ASSIGN_OR_RETURN(const InsertMessage data, InsertDecoder(make_chunk, limits).Decode(slices));
  for (const Item& item : data.items) {
    if (item.number > request.rows.size()) {
      return Status::InvalidArgument("message RowsRequest: has data of row " + Number(item.number) + " of " +
                                     Number(request.rows.size()));
    }
    if (item.trajectory.num_columns() == 0) continue;
    REVERB_ASSIGN_OR_RETURN(request.rows[item.number - 1].chunk, ChunkOf(item.trajectory));
  }
  return request;
}

WireMessage EncodeRowsReply(const RowsReply& reply, const WireEncoding& encoding) {
  WireWriter writer(128 * reply.rows.size() + 128, encoding);
  {
    const auto nested = writer.Begin(kCallField);
    WriteFields(reply.result, &writer);
    writer.End(nested);
  }
  std::vector<Sample> samples;
  samples.reserve(reply.rows_with_data);
  for (size_t i = 0; i < reply.rows.size(); ++i) {
    const RowRecord& row = reply.rows[i];
    WriteRow({.key = row.key,
              .group = row.group,
              .version = row.version,
              .is_open = row.is_open,
              .tags = ToRecords(row.tags),
              .columns = row.columns,
              .num_segments = {row.num_segments.begin(), row.num_segments.end()}},
             &writer);
    if (i >= reply.rows_with_data || row.segments.empty()) continue;
    std::vector<ColumnSpec> columns(row.segments.size());
    for (size_t k = 0; k < columns.size(); ++k) {
      const RowSegment& segment = row.segments[k];
      columns[k] = {.slices = {{.chunk = segment.chunk,
                                .chunk_column = segment.chunk_column,
                                .offset = segment.offset,
                                .length = 1}},
                    .squeeze = true};
    }
    Result<Trajectory> trajectory = Trajectory::Create(columns);
    // Rows of a table always are readable; the receiver would report that data is missing.
    if (trajectory.ok()) samples.push_back({.key = i, .trajectory = *std::move(trajectory)});
  }
  writer.Uint(kRowsWithDataField, reply.rows_with_data);
  const PieceBuilder pieces(samples);
  pieces.WriteSamples(kSamplesField, &writer);
  pieces.WritePieces(&writer);
  return writer.Finish();
}

Result<RowsReply> DecodeRowsReply(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "RowsResponse";
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  RowsReply reply;
  ClearFields(&reply.result);
  while (reader.Next()) {
    switch (reader.field()) {
      case kCallField:
        REVERB_RETURN_IF_ERROR(ReadFields(reader.ReadMessage(), limits, &reply.result));
        break;
      case kRowsField: {
        if (reply.rows.size() >= limits.max_updates) return TooMany(kName, "rows", limits.max_updates);
        RowHeader header;
        REVERB_RETURN_IF_ERROR(ReadNewFields(reader.ReadMessage(), limits, &header));
        RowRecord& row = reply.rows.emplace_back();
        row.key = std::move(header.key);
        row.group = std::move(header.group);
        row.version = header.version;
        row.is_open = header.is_open;
        row.columns = std::move(header.columns);
        row.num_segments.assign(header.num_segments.begin(), header.num_segments.end());
        REVERB_RETURN_IF_ERROR(FromRecords(std::move(header.tags), &row.tags));
        break;
      }
      case kRowsWithDataField:
        reader.Read(&reply.rows_with_data);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  const auto damaged = [](const std::string& what) {
    return Status::DataLoss("message RowsResponse: " + what).WithDetail(Detail::kCorruptData);
  };
  if (reply.rows_with_data > reply.rows.size()) return damaged("has data of more rows than there are");
  REVERB_ASSIGN_OR_RETURN(const InspectReply data, DecodeInspectReply(slices, limits));
  for (const Sample& sample : data.items) {
    if (sample.key >= reply.rows_with_data) return damaged("has data of row " + Number(sample.key));
    RowRecord& row = reply.rows[sample.key];
    row.segments.clear();
    for (uint32_t i = 0; i < sample.trajectory.num_columns(); ++i) {
      const SliceView slice = sample.trajectory.slice(i, 0);
      if (sample.trajectory.num_slices(i) != 1 || slice.length != 1) return damaged("a value is not one row");
      row.segments.push_back({.chunk = ChunkRef::Share(slice.chunk),
                              .chunk_column = slice.chunk_column,
                              .offset = slice.offset});
    }
  }
  for (size_t i = 0; i < reply.rows_with_data; ++i) {
    uint64_t expected = 0;
    for (const uint32_t count : reply.rows[i].num_segments) expected += count;
    if (expected != reply.rows[i].segments.size()) {
      return damaged("row " + Number(i) + " has " + Number(reply.rows[i].segments.size()) + " of " +
                     Number(expected) + " segments");
    }
  }
  return reply;
}

}  // namespace reverb::internal
