// The parts that several messages share, and the single calls.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "transport/wire.h"
#include "transport/wire_internal.h"

namespace reverb::internal {
namespace {

// Longer texts are cut: they are for people.
constexpr size_t kMaxSentTextBytes = size_t{1} << 14;

std::string_view CutText(std::string_view text) { return Utf8Prefix(text, kMaxSentTextBytes); }

std::string_view View(const Id128& id) {
  const bool is_none = std::ranges::all_of(id, [](uint8_t byte) { return byte == 0; });
  return is_none ? std::string_view() : std::string_view(reinterpret_cast<const char*>(id.data()), id.size());
}

void WriteLimits(const Limits& limits, WireWriter* writer) {
  writer->Uint(1, limits.max_message_bytes);
  writer->Uint(2, limits.max_chunk_bytes);
  writer->Uint(3, limits.insert_window_bytes);
  writer->Uint(4, limits.max_item_bytes);
}

Status ParseLimits(WireReader reader, Limits* limits) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&limits->max_message_bytes);
        break;
      case 2:
        reader.Read(&limits->max_chunk_bytes);
        break;
      case 3:
        reader.Read(&limits->insert_window_bytes);
        break;
      case 4:
        reader.Read(&limits->max_item_bytes);
        break;
    }
  }
  return reader.status("Limits");
}

void WriteRateLimiter(const RateLimiterOptions& options, WireWriter* writer) {
  writer->Double(1, options.samples_per_insert);
  writer->Count(2, options.min_size_to_sample);
  writer->Double(3, options.min_diff);
  writer->Double(4, options.max_diff);
}

// What is absent is 0, not the default of RateLimiterOptions.
constexpr RateLimiterOptions kNoRateLimiter = {
    .samples_per_insert = 0, .min_size_to_sample = 0, .min_diff = 0, .max_diff = 0};

Status ParseRateLimiter(WireReader reader, RateLimiterOptions* options) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&options->samples_per_insert);
        break;
      case 2:
        reader.ReadCount(&options->min_size_to_sample);
        break;
      case 3:
        reader.Read(&options->min_diff);
        break;
      case 4:
        reader.Read(&options->max_diff);
        break;
    }
  }
  return reader.status("RateLimiter");
}

void WriteSelector(const SelectorOptions& options, WireWriter* writer) {
  writer->Uint(1, static_cast<uint64_t>(options.kind));
  writer->Double(2, options.priority_exponent);
  writer->Bytes(3, options.custom_name);
}

Status ParseSelector(WireReader reader, const WireLimits& limits, SelectorOptions* options) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1: {
        uint32_t kind = 0;
        reader.Read(&kind);
        const bool known = kind <= static_cast<uint32_t>(SelectorOptions::Kind::kPrioritized);
        options->kind = known ? static_cast<SelectorOptions::Kind>(kind) : SelectorOptions::Kind::kCustom;
        break;
      }
      case 2:
        reader.Read(&options->priority_exponent);
        break;
      case 3:
        reader.Read(&options->custom_name, limits.max_name_bytes);
        break;
    }
  }
  return reader.status("Selector");
}

// What is absent has the value 0, as in every message.
constexpr SelectorOptions NoSelector() {
  return {.kind = SelectorOptions::Kind::kCustom, .priority_exponent = 0};
}

void WriteTableInfo(const TableInfo& info, WireWriter* writer) {
  writer->Bytes(1, info.name);
  for (const auto& [field, selector] : {std::pair(2, &info.sampler), std::pair(3, &info.remover)}) {
    const auto nested = writer->Begin(static_cast<uint32_t>(field));
    WriteSelector(*selector, writer);
    writer->End(nested);
  }
  writer->Count(4, info.max_size);
  writer->Int(5, info.max_times_sampled);
  const auto limiter = writer->Begin(6);
  WriteRateLimiter(info.rate_limiter, writer);
  writer->End(limiter);
  writer->Bytes(7, info.signature);
  writer->Count(8, info.current_size);
  writer->Count(9, info.num_episodes);
  writer->Count(10, info.num_deleted_episodes);
  writer->Count(11, info.num_unique_samples);
  writer->Count(12, info.counters.inserts);
  writer->Count(13, info.counters.samples);
  writer->Count(14, info.counters.deletes);
  writer->Count(15, info.referenced_bytes);
  writer->Count(16, info.evictions);
  writer->Count(17, info.expirations);
  writer->Count(18, info.explicit_deletes);
  writer->Count(19, info.updates);
  writer->Count(20, info.unknown_keys);
  writer->Double(21, info.inserts_per_second);
  writer->Double(22, info.samples_per_second);
  writer->Count(23, info.waiting_inserts);
  writer->Count(24, info.waiting_samples);
  writer->Uint(25, static_cast<uint64_t>(info.insert_wait_reason));
  writer->Uint(26, static_cast<uint64_t>(info.sample_wait_reason));
  writer->Count(27, info.longest_wait_nanos);
  for (int reason = 0; reason < kNumWaitReasons; ++reason) {
    const WaitStats& waits = info.waits[reason];
    if (waits.count == 0 && waits.total_nanos == 0) continue;
    const auto nested = writer->Begin(28);
    writer->Uint(1, static_cast<uint64_t>(reason));
    writer->Count(2, waits.count);
    writer->Count(3, waits.total_nanos);
    writer->End(nested);
  }
  writer->Count(29, info.work_time.inserting_nanos);
  writer->Count(30, info.work_time.sampling_nanos);
  writer->Count(31, info.work_time.waiting_for_inserts_nanos);
  writer->Count(32, info.work_time.waiting_for_sampling_nanos);
  writer->Count(33, info.work_time.idle_nanos);
  writer->Bool(34, info.closed);
  writer->Bytes(35, info.user_data);
  if (info.structure) writer->AlwaysBytes(36, *info.structure);  // an empty one says something
}

Status ParseWaitStats(WireReader reader, TableInfo* info) {
  uint32_t reason = 0;
  WaitStats waits;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&reason);
        break;
      case 2:
        reader.ReadCount(&waits.count);
        break;
      case 3:
        reader.ReadCount(&waits.total_nanos);
        break;
    }
  }
  if (reason < kNumWaitReasons) info->waits[reason] = waits;  // others: reasons of newer servers
  return reader.status("WaitStats");
}

void ReadReason(WireReader* reader, WaitReason* reason) {
  uint32_t number = 0;
  reader->Read(&number);
  *reason = ToWaitReason(number);
}

Status ParseTableInfo(WireReader reader, const WireLimits& limits, TableInfo* info) {
  info->sampler = NoSelector();
  info->remover = NoSelector();
  info->rate_limiter = kNoRateLimiter;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&info->name, limits.max_name_bytes);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ParseSelector(reader.ReadMessage(), limits, &info->sampler));
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(ParseSelector(reader.ReadMessage(), limits, &info->remover));
        break;
      case 4:
        reader.ReadCount(&info->max_size);
        break;
      case 5:
        reader.ReadInt(&info->max_times_sampled);
        break;
      case 6:
        REVERB_RETURN_IF_ERROR(ParseRateLimiter(reader.ReadMessage(), &info->rate_limiter));
        break;
      case 7:
        reader.Read(&info->signature, limits.max_signature_bytes);
        break;
      case 8:
        reader.ReadCount(&info->current_size);
        break;
      case 9:
        reader.ReadCount(&info->num_episodes);
        break;
      case 10:
        reader.ReadCount(&info->num_deleted_episodes);
        break;
      case 11:
        reader.ReadCount(&info->num_unique_samples);
        break;
      case 12:
        reader.ReadCount(&info->counters.inserts);
        break;
      case 13:
        reader.ReadCount(&info->counters.samples);
        break;
      case 14:
        reader.ReadCount(&info->counters.deletes);
        break;
      case 15:
        reader.ReadCount(&info->referenced_bytes);
        break;
      case 16:
        reader.ReadCount(&info->evictions);
        break;
      case 17:
        reader.ReadCount(&info->expirations);
        break;
      case 18:
        reader.ReadCount(&info->explicit_deletes);
        break;
      case 19:
        reader.ReadCount(&info->updates);
        break;
      case 20:
        reader.ReadCount(&info->unknown_keys);
        break;
      case 21:
        reader.Read(&info->inserts_per_second);
        break;
      case 22:
        reader.Read(&info->samples_per_second);
        break;
      case 23:
        reader.ReadCount(&info->waiting_inserts);
        break;
      case 24:
        reader.ReadCount(&info->waiting_samples);
        break;
      case 25:
        ReadReason(&reader, &info->insert_wait_reason);
        break;
      case 26:
        ReadReason(&reader, &info->sample_wait_reason);
        break;
      case 27:
        reader.ReadCount(&info->longest_wait_nanos);
        break;
      case 28:
        REVERB_RETURN_IF_ERROR(ParseWaitStats(reader.ReadMessage(), info));
        break;
      case 29:
        reader.ReadCount(&info->work_time.inserting_nanos);
        break;
      case 30:
        reader.ReadCount(&info->work_time.sampling_nanos);
        break;
      case 31:
        reader.ReadCount(&info->work_time.waiting_for_inserts_nanos);
        break;
      case 32:
        reader.ReadCount(&info->work_time.waiting_for_sampling_nanos);
        break;
      case 33:
        reader.ReadCount(&info->work_time.idle_nanos);
        break;
      case 34:
        reader.Read(&info->closed);
        break;
      case 35:
        reader.Read(&info->user_data, limits.max_signature_bytes);
        break;
      case 36:
        reader.Read(&info->structure.emplace(), ItemStructure::kMaxBytes);
        break;
    }
  }
  info->cursor = static_cast<double>(info->counters.inserts) * info->rate_limiter.samples_per_insert -
                 static_cast<double>(info->counters.samples);
  return reader.status("TableInfo");
}

// A message whose only field is a string.
WireMessage EncodeString(std::string_view value) {
  WireWriter writer(value.size() + 8);
  writer.Bytes(1, value);
  return writer.Finish();
}

Result<std::string> DecodeString(ByteSlices slices, std::string_view message, size_t max_bytes,
                                 const WireLimits& limits) {
  WireReader reader(slices);
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

Status CheckMessageSize(const WireReader& reader, std::string_view message, const WireLimits& limits) {
  if (reader.remaining() <= limits.max_message_bytes) return Status::Ok();
  return Status::ResourceExhausted("message " + std::string(message) + " has " + Number(reader.remaining()) +
                                   " bytes, at most " + Number(limits.max_message_bytes) + " are accepted");
}

Status TooMany(std::string_view message, std::string_view what, uint64_t limit) {
  return Status::ResourceExhausted("message " + std::string(message) + ": more than the " + Number(limit) +
                                   " " + std::string(what) + " that are accepted");
}

Status At(std::string where, const Status& status) {
  return Status(status.code(), std::move(where) + ": " + std::string(status.message()), status.detail());
}

void WriteHello(const Hello& hello, WireWriter* writer) {
  writer->Uint(1, hello.min_version);
  writer->Uint(2, hello.max_version);
  writer->Bytes(3, View(hello.session_id));
  writer->Bytes(4, hello.client_name);
  writer->Uint(5, hello.receive_window_bytes);
  writer->Uint(6, hello.max_response_bytes);
}

Status ParseHello(WireReader reader, const WireLimits& limits, Hello* hello) {
  hello->min_version = hello->max_version = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&hello->min_version);
        break;
      case 2:
        reader.Read(&hello->max_version);
        break;
      case 3:
        reader.Read(&hello->session_id);
        break;
      case 4:
        reader.Read(&hello->client_name, limits.max_name_bytes);
        break;
      case 5:
        reader.Read(&hello->receive_window_bytes);
        break;
      case 6:
        reader.Read(&hello->max_response_bytes);
        break;
    }
  }
  return reader.status("Hello");
}

void WriteWelcome(const Welcome& welcome, WireWriter* writer) {
  writer->Uint(1, welcome.version);
  writer->Bytes(2, View(welcome.server_life_id));
  writer->Bytes(3, welcome.server_name);
  writer->Uint(4, welcome.applied_through);
  const auto nested = writer->Begin(5);
  WriteLimits(welcome.limits, writer);
  writer->End(nested);
}

Status ParseWelcome(WireReader reader, const WireLimits& limits, Welcome* welcome) {
  welcome->version = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&welcome->version);
        break;
      case 2:
        reader.Read(&welcome->server_life_id);
        break;
      case 3:
        reader.Read(&welcome->server_name, limits.max_name_bytes);
        break;
      case 4:
        reader.Read(&welcome->applied_through);
        break;
      case 5:
        REVERB_RETURN_IF_ERROR(ParseLimits(reader.ReadMessage(), &welcome->limits));
        break;
    }
  }
  return reader.status("Welcome");
}

void WriteStatus(const Status& status, WireWriter* writer) {
  writer->Uint(1, static_cast<uint64_t>(status.code()));
  writer->Uint(2, static_cast<uint64_t>(status.detail()));
  writer->Bytes(3, CutText(status.message()));
}

Status ParseStatus(WireReader reader, const WireLimits& limits, Status* status) {
  uint32_t code = 0;
  uint32_t detail = 0;
  std::string text;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&code);
        break;
      case 2:
        reader.Read(&detail);
        break;
      case 3:
        reader.Read(&text, limits.max_text_bytes);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("Status"));
  if (code == 0) {
    *status = Status::Ok();
    return Status::Ok();
  }
  if (code > static_cast<uint32_t>(StatusCode::kUnauthenticated)) {
    code = static_cast<uint32_t>(StatusCode::kUnknown);
  }
  if (detail > static_cast<uint32_t>(Detail::kQueued)) detail = 0;
  *status = Status(static_cast<StatusCode>(code), std::move(text), static_cast<Detail>(detail));
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

Status ParseBlock(WireReader reader, BlockInfo* block) {
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

Status ParseColumnHeader(WireReader reader, ColumnHeader* column) {
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

Status ParseColumn(WireReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   ColumnSpec* column) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1: {
        if (*slices_left == 0) return Status::ResourceExhausted("more slices than are accepted in a message");
        --*slices_left;
        WireSlice slice;
        WireReader fields = reader.ReadMessage();
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

Status ParseNextColumn(WireReader* message, std::string_view name,
                       const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                       const WireLimits& limits, std::vector<ColumnSpec>* columns) {
  if (columns->size() >= limits.max_columns) return TooMany(name, "columns", limits.max_columns);
  const Status status = ParseColumn(message->ReadMessage(), resolve, slices_left, &columns->emplace_back());
  return status.ok() ? status : At("column " + Number(columns->size() - 1), status);
}

WaitReason ToWaitReason(uint32_t number) {
  return number < kNumWaitReasons ? static_cast<WaitReason>(number) : WaitReason::kNone;
}

// --- Single calls ---

WireMessage EncodeMutateRequest(const MutateRequest& request) {
  WireWriter writer(request.table.size() + 20 * request.updates.size() + 8 * request.deletes.size() + 32);
  writer.Bytes(1, request.table);
  for (const KeyPriority& update : request.updates) {
    const auto nested = writer.Begin(2);
    writer.Fixed64(1, update.key);
    writer.Double(2, update.priority);
    writer.End(nested);
  }
  writer.PackedFixed64(3, request.deletes);
  return writer.Finish();
}

Result<MutateRequest> DecodeMutateRequest(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "MutatePrioritiesRequest";
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  MutateRequest request;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&request.table, limits.max_name_bytes);
        break;
      case 2: {
        if (request.updates.size() >= limits.max_updates)
          return TooMany(kName, "updates", limits.max_updates);
        KeyPriority& update = request.updates.emplace_back();
        WireReader fields = reader.ReadMessage();
        while (fields.Next()) {
          if (fields.field() == 1) fields.ReadFixed(&update.key);
          if (fields.field() == 2) fields.Read(&update.priority);
        }
        REVERB_RETURN_IF_ERROR(fields.status("KeyPriority"));
        break;
      }
      case 3:
        reader.ReadFixed64s([&](uint64_t key) { request.deletes.push_back(key); });
        if (request.deletes.size() > limits.max_updates) return TooMany(kName, "deletes", limits.max_updates);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  return request;
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
  WireWriter writer;
  writer.Bytes(1, request.table);
  const auto nested = writer.Begin(2);
  WriteRateLimiter(request.options, &writer);
  writer.End(nested);
  return writer.Finish();
}

Result<SetRateLimiterRequest> DecodeSetRateLimiterRequest(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "SetRateLimiterRequest";
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  SetRateLimiterRequest request{.table = {}, .options = kNoRateLimiter};
  bool has_limiter = false;
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&request.table, limits.max_name_bytes);
    if (reader.field() == 2) {
      REVERB_RETURN_IF_ERROR(ParseRateLimiter(reader.ReadMessage(), &request.options));
      has_limiter = true;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  if (!has_limiter) return Status::InvalidArgument("message SetRateLimiterRequest: has no rate_limiter");
  return request;
}

namespace {

void WriteWaiter(const WaiterInfo& waiter, WireWriter* writer) {
  writer->Bytes(1, waiter.table);
  writer->Bool(2, waiter.is_insert);
  writer->Uint(3, static_cast<uint32_t>(waiter.reason));
  writer->Count(4, waiter.waited_nanos);
  writer->Count(5, waiter.count);
  writer->Bytes(6, waiter.client_name);
  writer->Bytes(7, waiter.address);
}

Status ParseWaiter(WireReader reader, const WireLimits& limits, WaiterInfo* waiter) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&waiter->table, limits.max_name_bytes);
        break;
      case 2:
        reader.Read(&waiter->is_insert);
        break;
      case 3: {
        uint32_t reason = 0;
        reader.Read(&reason);
        waiter->reason = ToWaitReason(reason);
        break;
      }
      case 4:
        reader.ReadCount(&waiter->waited_nanos);
        break;
      case 5:
        reader.ReadCount(&waiter->count);
        break;
      case 6:
        reader.Read(&waiter->client_name, limits.max_name_bytes);
        break;
      case 7:
        reader.Read(&waiter->address, limits.max_name_bytes);
        break;
    }
  }
  return reader.status("Waiter");
}

}  // namespace

WireMessage EncodeServerInfo(const ServerInfo& info) {
  WireWriter writer(512 * info.tables.size() + 128);
  writer.Bytes(1, View(info.server_life_id));
  writer.Bytes(2, info.server_name);
  for (const TableInfo& table : info.tables) {
    const auto nested = writer.Begin(3, 256);
    WriteTableInfo(table, &writer);
    writer.End(nested);
  }
  writer.Count(4, info.live_chunks);
  writer.Count(5, info.live_bytes);
  writer.Count(6, info.stored_bytes);
  if (info.max_bytes) writer.AlwaysUint(7, static_cast<uint64_t>(std::max<int64_t>(*info.max_bytes, 0)));
  writer.Count(8, info.now_nanos);
  writer.Count(9, info.started_nanos);
  for (const WaiterInfo& waiter : info.waiters) {
    const auto nested = writer.Begin(10);
    WriteWaiter(waiter, &writer);
    writer.End(nested);
  }
  return writer.Finish();
}

Result<ServerInfo> DecodeServerInfo(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "InfoResponse";
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  ServerInfo info;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&info.server_life_id);
        break;
      case 2:
        reader.Read(&info.server_name, limits.max_name_bytes);
        break;
      case 3:
        if (info.tables.size() >= limits.max_items) return TooMany(kName, "tables", limits.max_items);
        REVERB_RETURN_IF_ERROR(ParseTableInfo(reader.ReadMessage(), limits, &info.tables.emplace_back()));
        break;
      case 4:
        reader.ReadCount(&info.live_chunks);
        break;
      case 5:
        reader.ReadCount(&info.live_bytes);
        break;
      case 6:
        reader.ReadCount(&info.stored_bytes);
        break;
      case 7:
        reader.ReadCount(&info.max_bytes.emplace());
        break;
      case 8:
        reader.ReadCount(&info.now_nanos);
        break;
      case 9:
        reader.ReadCount(&info.started_nanos);
        break;
      case 10:
        if (info.waiters.size() >= limits.max_items) return TooMany(kName, "waiters", limits.max_items);
        REVERB_RETURN_IF_ERROR(ParseWaiter(reader.ReadMessage(), limits, &info.waiters.emplace_back()));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  return info;
}

WireMessage EncodeInspectRequest(const InspectRequest& request) {
  WireWriter writer(request.table.size() + 32);
  writer.Bytes(1, request.table);
  writer.Uint(2, request.cursor);
  writer.Uint(3, request.count);
  return writer.Finish();
}

Result<InspectRequest> DecodeInspectRequest(ByteSlices slices, const WireLimits& limits) {
  constexpr std::string_view kName = "InspectRequest";
  WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  InspectRequest request;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&request.table, limits.max_name_bytes);
        break;
      case 2:
        reader.Read(&request.cursor);
        break;
      case 3:
        reader.Read(&request.count);
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  return request;
}

WireMessage EncodeEmpty() { return {}; }

Status DecodeEmpty(ByteSlices slices, const WireLimits& limits) {
  WireReader reader(slices);
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
  const WireReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, "Status", limits));
  return ParseStatus(reader, limits, status);
}

}  // namespace reverb::internal
