// The parts that several messages share, and the messages of single calls.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "transport/wire.h"
#include "transport/wire_fields.h"
#include "transport/wire_internal.h"

namespace reverb::internal {
namespace {

// Longer error messages are truncated.
constexpr size_t kMaxSentTextBytes = size_t{1} << 14;

// Encodes a message whose only field is a string.
WireMessage EncodeString(std::string_view value) {
  WireWriter writer(value.size() + 8);
  writer.Bytes(1, value);
  return writer.Finish();
}

Result<std::string> DecodeString(ByteSlices slices, std::string_view message, size_t max_bytes,
                                 const WireLimits& limits) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, message, limits));
  std::string value;
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&value, max_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status(message));
  return value;
}

}  // namespace

// --- Shared parts ---

Status CheckMessageSize(const ProtoReader& reader, std::string_view message, const WireLimits& limits) {
  if (reader.remaining() <= limits.max_message_bytes) return Status::Ok();
  return Status::ResourceExhausted("message " + std::string(message) + " has " + Number(reader.remaining()) +
                                   " bytes, at most " + Number(limits.max_message_bytes) + " are accepted");
}

Status TooMany(std::string_view message, std::string_view what, uint64_t limit) {
  return Status::ResourceExhausted("message " + std::string(message) + ": more than the " + Number(limit) +
                                   " " + std::string(what) + " that are accepted");
}

void FinishDecoding(TableInfo* info) {
  info->cursor = info->counters.Cursor(info->rate_limiter.samples_per_insert);
}

void FinishDecoding(Rejection* rejection) {
  if (rejection->status.ok()) rejection->status = Status(StatusCode::kUnknown, "rejected without a reason");
}

void WriteHello(const Hello& hello, WireWriter* writer) { WriteFields(hello, writer); }
Status ParseHello(ProtoReader reader, const WireLimits& limits, Hello* hello) {
  return ReadNewFields(reader, limits, hello);
}

void WriteWelcome(const Welcome& welcome, WireWriter* writer) { WriteFields(welcome, writer); }
Status ParseWelcome(ProtoReader reader, const WireLimits& limits, Welcome* welcome) {
  return ReadNewFields(reader, limits, welcome);
}

void WriteTableMass(const TableMass& mass, WireWriter* writer) { WriteFields(mass, writer); }
Status ParseTableMass(ProtoReader reader, const WireLimits& limits, TableMass* mass) {
  return ReadNewFields(reader, limits, mass);
}

void WriteStatus(const Status& status, WireWriter* writer) {
  WriteFields(StatusRecord{.code = static_cast<uint32_t>(status.code()),
                           .detail = static_cast<uint32_t>(status.detail()),
                           .message = std::string(Utf8Prefix(status.message(), kMaxSentTextBytes))},
              writer);
}

Status ParseStatus(ProtoReader reader, const WireLimits& limits, Status* status) {
  StatusRecord record;
  REVERB_RETURN_IF_ERROR(ReadFields(reader, limits, &record));
  if (record.code == 0) {
    *status = Status::Ok();
    return Status::Ok();
  }
  if (record.code > static_cast<uint32_t>(StatusCode::kUnauthenticated)) {
    record.code = static_cast<uint32_t>(StatusCode::kUnknown);
  }
  if (record.detail > static_cast<uint32_t>(Detail::kQueued)) record.detail = 0;
  *status = Status(static_cast<StatusCode>(record.code), std::move(record.message),
                   static_cast<Detail>(record.detail));
  return Status::Ok();
}

void WriteColumnHeader(const ColumnView& column, WireWriter* writer) {
  writer->Uint(1, static_cast<uint64_t>(column.dtype));
  writer->Uint(2, static_cast<uint64_t>(column.codec));
  writer->Bool(3, column.delta);
  writer->PackedUint(4, column.row_shape);
  writer->Uint(5, column.rows_per_block);
  for (const BlockInfo& block : column.blocks) {
    const auto nested = writer->Begin(6);
    writer->Uint(1, block.stored_size);
    writer->Uint(2, block.raw_size);
    writer->Fixed64(3, block.checksum);
    writer->End(nested);
  }
}

namespace {

Status ParseBlock(ProtoReader reader, BlockInfo* block) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&block->stored_size);
        break;
      case 2:
        reader.Read(&block->raw_size);
        break;
      case 3:
        reader.ReadFixed(&block->checksum);
        break;
    }
  }
  return reader.status("Block");
}

Status BadColumn(std::string what) {
  return Status::DataLoss("message ColumnHeader: " + std::move(what)).WithDetail(Detail::kCorruptData);
}

}  // namespace

Status ParseColumnHeader(ProtoReader reader, ColumnHeader* column) {
  uint32_t dtype = static_cast<uint32_t>(column->dtype);
  uint32_t codec = static_cast<uint32_t>(column->codec);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&dtype);
        break;
      case 2:
        reader.Read(&codec);
        break;
      case 3:
        reader.Read(&column->delta);
        break;
      case 4: {
        bool fits = true;
        reader.ReadVarints([&](uint64_t dim) {
          fits &= dim <= std::numeric_limits<uint32_t>::max() && column->row_shape.size() < kMaxRowRank;
          if (fits) column->row_shape.push_back(static_cast<uint32_t>(dim));
        });
        if (!fits) {
          return BadColumn("a dimension of 32 bits at most, and " + Number(kMaxRowRank) +
                           " of them, are accepted");
        }
        break;
      }
      case 5:
        reader.Read(&column->rows_per_block);
        break;
      case 6:
        REVERB_RETURN_IF_ERROR(ParseBlock(reader.ReadMessage(), &column->blocks.emplace_back()));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("ColumnHeader"));
  if (dtype > 255 || !IsKnownDType(static_cast<uint8_t>(dtype))) {
    return BadColumn("dtype number " + Number(dtype) + " is not known");
  }
  if (codec > 255 || !IsKnownCodec(static_cast<uint8_t>(codec))) {
    return BadColumn("codec number " + Number(codec) + " is not known");
  }
  column->dtype = static_cast<DType>(dtype);
  column->codec = static_cast<Codec>(codec);
  return Status::Ok();
}

void WriteSlice(const WireSlice& slice, WireWriter* writer) {
  const auto nested = writer->Begin(1);
  writer->Uint(1, slice.chunk_id);
  writer->Uint(2, slice.chunk_column);
  writer->Uint(3, slice.offset);
  writer->Uint(4, slice.length);
  writer->End(nested);
}

Status ParseColumn(ProtoReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   ColumnSpec* column) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1: {
        if (*slices_left == 0) return Status::ResourceExhausted("more slices than are accepted in a message");
        --*slices_left;
        WireSlice slice;
        ProtoReader fields = reader.ReadMessage();
        while (fields.Next()) {
          switch (fields.field()) {
            case 1:
              fields.Read(&slice.chunk_id);
              break;
            case 2:
              fields.Read(&slice.chunk_column);
              break;
            case 3:
              fields.Read(&slice.offset);
              break;
            case 4:
              fields.Read(&slice.length);
              break;
          }
        }
        REVERB_RETURN_IF_ERROR(fields.status("Slice"));
        if (!reader.ok()) break;
        Chunk* const chunk = resolve(slice.chunk_id);
        if (chunk == nullptr) {
          return Status::InvalidArgument("slice " + Number(column->slices.size()) + " refers to chunk " +
                                         Number(slice.chunk_id) + ", which is not known here");
        }
        column->slices.push_back({.chunk = ChunkRef::Share(chunk),
                                  .chunk_column = slice.chunk_column,
                                  .offset = slice.offset,
                                  .length = slice.length});
        break;
      }
      case 2:
        reader.Read(&column->squeeze);
        break;
    }
  }
  return reader.status("Column");
}

Status ParseNextColumn(ProtoReader* message, std::string_view name,
                       const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                       const WireLimits& limits, ColumnSpecs* columns) {
  if (columns->size() >= limits.max_columns) return TooMany(name, "columns", limits.max_columns);
  const Status status = ParseColumn(message->ReadMessage(), resolve, slices_left, columns->Add());
  return status.ok() ? status : status.Prefixed("column " + Number(columns->size() - 1));
}

// --- Replies of insert streams, requests of sample streams ---

WireMessage EncodeInsertReply(const InsertReply& reply) { return EncodeFields(reply); }
Result<InsertReply> DecodeInsertReply(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<InsertReply>(slices, limits);
}

WireMessage EncodeSampleRequest(const SampleStreamMessage& message) { return EncodeFields(message); }
Result<SampleStreamMessage> DecodeSampleRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<SampleStreamMessage>(slices, limits);
}

// --- Single calls ---

WireMessage EncodeSettleLeasesRequest(const SettleLeasesRequest& request) { return EncodeFields(request); }
Result<SettleLeasesRequest> DecodeSettleLeasesRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<SettleLeasesRequest>(slices, limits);
}
WireMessage EncodeLeaseOutcome(const LeaseOutcome& outcome) { return EncodeFields(outcome); }
Result<LeaseOutcome> DecodeLeaseOutcome(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<LeaseOutcome>(slices, limits);
}

WireMessage EncodeMutateRequest(const MutateRequest& request) {
  return EncodeFields(request,
                      request.table.size() + 20 * request.updates.size() + 8 * request.deletes.size() + 32);
}
Result<MutateRequest> DecodeMutateRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<MutateRequest>(slices, limits);
}

WireMessage EncodeResetRequest(std::string_view table) { return EncodeString(table); }
Result<std::string> DecodeResetRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeString(slices, "ResetRequest", limits.max_name_bytes, limits);
}

WireMessage EncodeCheckpointReply(std::string_view path) { return EncodeString(path); }
Result<std::string> DecodeCheckpointReply(ByteSlices slices, const WireLimits& limits) {
  return DecodeString(slices, "CheckpointResponse", limits.max_text_bytes, limits);
}

WireMessage EncodeSetRateLimiterRequest(const SetRateLimiterRequest& request) {
  return EncodeFields(request);
}
Result<SetRateLimiterRequest> DecodeSetRateLimiterRequest(ByteSlices slices, const WireLimits& limits) {
  REVERB_ASSIGN_OR_RETURN(SetRateLimiterRequest request, DecodeFields<SetRateLimiterRequest>(slices, limits));
  bool has_limiter = false;
  for (ProtoReader reader(slices); reader.Next();) has_limiter |= reader.field() == 2;
  if (!has_limiter) return Status::InvalidArgument("message SetRateLimiterRequest: has no rate_limiter");
  return request;
}

WireMessage EncodeCreateTableRequest(const CreateTableRequest& request) {
  return EncodeFields(request, request.table.signature.size() + 128);
}
Result<CreateTableRequest> DecodeCreateTableRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<CreateTableRequest>(slices, limits);
}

WireMessage EncodeRemoveTableRequest(std::string_view table) { return EncodeString(table); }
Result<std::string> DecodeRemoveTableRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeString(slices, "RemoveTableRequest", limits.max_name_bytes, limits);
}

WireMessage EncodeChangeTableRequest(const ChangeTableRequest& request) { return EncodeFields(request); }
Result<ChangeTableRequest> DecodeChangeTableRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<ChangeTableRequest>(slices, limits);
}

WireMessage EncodeServerInfo(const ServerInfo& info) {
  return EncodeFields(info, 512 * info.tables.size() + 128);
}
Result<ServerInfo> DecodeServerInfo(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<ServerInfo>(slices, limits);
}

WireMessage EncodeInspectRequest(const InspectRequest& request) { return EncodeFields(request); }
Result<InspectRequest> DecodeInspectRequest(ByteSlices slices, const WireLimits& limits) {
  return DecodeFields<InspectRequest>(slices, limits);
}

WireMessage EncodeEmpty() { return {}; }

Status DecodeEmpty(ByteSlices slices, const WireLimits& limits) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, "without fields", limits));
  while (reader.Next()) {
  }
  return reader.status("without fields");
}

WireMessage EncodeStatus(const Status& status) {
  WireWriter writer;
  WriteStatus(status, &writer);
  return writer.Finish();
}

Status DecodeStatus(ByteSlices slices, Status* status, const WireLimits& limits) {
  const ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, "Status", limits));
  return ParseStatus(reader, limits, status);
}

}  // namespace reverb::internal
