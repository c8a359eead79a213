// Encodes and decodes the messages of row tables.
//
// What describes an operation and its rows has lists of fields. The data of a row that is written is a Chunk of an
// insert stream, whose ID is the number of the row; that of a row that is read, a Piece of a sample for each segment.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/wire.h"
#include "transport/wire_fields.h"
#include "transport/wire_internal.h"
#include "transport/wire_shared_columns.h"

namespace reverb::internal {
namespace {

constexpr uint32_t kPiecesField = 15;  // or chunks
constexpr uint32_t kCallField = 16;    // or the result
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

// Writes the value of a segment as it is stored. Without checksums of rows, the receiver may leave it where it is.
void WriteSegment(const RowSegment& segment, WireWriter* writer) {
  constexpr size_t kMinReferredBytes = 1024;  // the receiver copies less
  ColumnView view = segment.column();
  BlockInfo block = view.blocks[0];
  if (!writer->encoding().row_checksums && view.codec == Codec::kRaw && view.dtype != DType::kString) {
    block.checksum = 0;
  }
  view.blocks = {&block, 1};
  const std::span<const uint8_t> payload = segment.chunk->column_payload(segment.chunk_column);
  const bool by_reference = payload.size() >= kMinReferredBytes && writer->IsShared(payload);
  const auto nested = BeginPiece(view, payload.size(), writer, by_reference);
  if (!payload.empty()) writer->AppendOf(segment.chunk.get(), payload);
  writer->End(nested);
}

}  // namespace

WireMessage EncodeRowsRequest(const RowsRequest& request, const WireEncoding& encoding) {
  WireWriter writer(192 * request.rows.size() + 128, encoding);
  {
    const auto nested = writer.Begin(kCallField);
    WriteFields(request.call, &writer);
    writer.End(nested);
  }
  for (const RowWrite& row : request.rows) {
    WriteRow({.key = row.key, .group = row.group, .tags = ToRecords(row.tags)}, &writer);
  }
  for (size_t i = 0; i < request.rows.size(); ++i) {
    if (request.rows[i].chunk) WriteChunk(request.rows[i].chunk.get(), i + 1, &writer);
  }
  return writer.Finish();
}

Result<RowsRequest> DecodeRowsRequest(ByteSlices slices, const InsertDecoder::ChunkFactory& make_chunk,
                                      const WireLimits& limits) {
  constexpr std::string_view kName = "RowsRequest";
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  RowsRequest request;
  ClearFields(&request.call);
  InsertDecoder decoder(make_chunk, limits);
  std::vector<std::pair<uint64_t, ChunkRef>> chunks;  // by the number of the row
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
    } else if (reader.field() == kPiecesField) {
      if (chunks.size() >= limits.max_chunks) return TooMany(kName, "chunks", limits.max_chunks);
      const ProtoReader chunk = reader.ReadMessage();
      if (!reader.ok()) break;
      auto& [row, read] = chunks.emplace_back();
      REVERB_ASSIGN_OR_RETURN(read, decoder.ReadChunk(chunk, &row));
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  for (auto& [row, chunk] : chunks) {
    if (row < 1 || row > request.rows.size() || request.rows[row - 1].chunk) {
      return Status::InvalidArgument("message RowsRequest: has data of row " + Number(row) + " of " +
                                     Number(request.rows.size()) + ", or has it twice");
    }
    request.rows[row - 1].chunk = std::move(chunk);
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
  for (const RowRecord& row : reply.rows) {
    WriteRow({.key = row.key,
              .group = row.group,
              .version = row.version,
              .is_open = row.is_open,
              .tags = ToRecords(row.tags),
              .columns = row.columns,
              .num_segments = {row.num_segments.begin(), row.num_segments.end()},
              .is_requeued = row.is_requeued,
              .is_stale = row.is_stale,
              .leased_by = row.leased_by,
              .consumed_by = row.consumed_by},
             &writer);
  }
  writer.Uint(kRowsWithDataField, reply.rows_with_data);
  for (const RowRecord& row : std::span(reply.rows).first(reply.rows_with_data)) {
    for (const RowSegment& segment : row.segments) WriteSegment(segment, &writer);
  }
  return writer.Finish();
}

Result<RowsReply> DecodeRowsReply(ByteSlices slices, const WireLimits& limits, const Buffer& keeper,
                                  RowChecksums row_checksums) {
  constexpr std::string_view kName = "RowsResponse";
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  RowsReply reply;
  ClearFields(&reply.result);
  std::vector<ChunkRef> pieces;
  uint64_t decoded_bytes = 0;
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
        row.is_requeued = header.is_requeued;
        row.is_stale = header.is_stale;
        row.leased_by = std::move(header.leased_by);
        row.consumed_by = std::move(header.consumed_by);
        REVERB_RETURN_IF_ERROR(FromRecords(std::move(header.tags), &row.tags));
        break;
      }
      case kRowsWithDataField:
        reader.Read(&reply.rows_with_data);
        break;
      case kPiecesField: {
        if (pieces.size() >= limits.max_slices) return TooMany(kName, "pieces", limits.max_slices);
        const ProtoReader piece = reader.ReadMessage();
        if (!reader.ok()) break;
        const size_t number = pieces.size();
        const Status status =
            ParsePiece(piece, number, limits, keeper, row_checksums, &pieces.emplace_back());
        if (!status.ok()) return status.Prefixed("piece " + Number(number));
        decoded_bytes += pieces.back()->header().raw_size();
        if (decoded_bytes > limits.max_decoded_reply_bytes) {
          return Status::ResourceExhausted("message RowsResponse: its rows take more than " +
                                           Number(limits.max_decoded_reply_bytes) +
                                           " bytes when they are decoded; raise the client's "
                                           "max_decoded_reply_bytes, or request fewer rows");
        }
        break;
      }
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  const auto damaged = [](const std::string& what) {
    return Status::DataLoss("message RowsResponse: " + what).WithDetail(Detail::kCorruptData);
  };
  if (reply.rows_with_data > reply.rows.size()) return damaged("has data of more rows than there are");
  size_t next = 0;
  for (RowRecord& row : std::span(reply.rows).first(reply.rows_with_data)) {
    uint64_t count = 0;
    for (const uint32_t each : row.num_segments) count += each;
    if (count > pieces.size() - next) {
      return damaged("row \"" + row.key + "\" has " + Number(count) + " segments, but " +
                     Number(pieces.size() - next) + " are left");
    }
    row.segments.reserve(count);
    for (; count > 0; --count, ++next) {
      if (pieces[next]->header().rows() != 1) return damaged("a value is not one row");
      row.segments.push_back({.chunk = std::move(pieces[next])});
    }
  }
  if (next != pieces.size()) return damaged("has data that belongs to no row");
  REVERB_RETURN_IF_ERROR(keeper.CheckValid());
  return reply;
}

}  // namespace reverb::internal
