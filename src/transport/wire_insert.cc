// Encodes and decodes the requests of insert streams.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_seal.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kRequest = "InsertRequest";
// The memory of larger headers is not kept for the next chunk.
constexpr size_t kMaxKeptHeaderBytes = 4096;
// A longer message of a column is not compared with the next one.
constexpr size_t kMaxKeptColumnBytes = 256;

// Removes all values, but keeps the memory.
void Reset(ColumnHeader* column) {
  ColumnHeader empty;
  std::swap(empty.row_shape, column->row_shape);
  std::swap(empty.blocks, column->blocks);
  empty.row_shape.clear();
  empty.blocks.clear();
  *column = std::move(empty);
}

// Estimates the encoded size of a header.
uint64_t HeaderBytes(const PackedChunkHeader& header) {
  uint64_t bytes = 40;
  for (uint32_t i = 0; i < header.num_columns(); ++i) bytes += 16 + 18 * header.column(i).blocks.size();
  return bytes;
}

}  // namespace

void WriteChunk(Chunk* chunk, uint64_t id, WireWriter* writer) {
  const PackedChunkHeader header = chunk->header();
  const auto nested = writer->Begin(15, HeaderBytes(header) + chunk->payload().size());
  writer->Uint(1, id);
  writer->Uint(2, header.episode_id());
  writer->Sint(3, header.first_step());
  writer->Sint(4, header.last_step());
  writer->Uint(5, header.rows());
  for (uint32_t i = 0; i < header.num_columns(); ++i) {
    const auto column = writer->Begin(6);
    WriteColumnHeader(header.column(i), writer);
    writer->End(column);
  }
  const std::span<const uint8_t> payload = chunk->payload();
  if (!payload.empty()) {
    writer->BeginPayload(kDataField, payload);
    writer->AppendOf(chunk, payload);
  }
  writer->End(nested);
}

namespace {

void WriteItem(const Item& item, bool with_table, std::optional<uint32_t> structure, WireWriter* writer) {
  const auto nested = writer->Begin(2);
  writer->Uint(1, item.number);
  writer->Fixed64(2, item.key);
  if (with_table) writer->Bytes(3, item.table);
  writer->Double(4, item.priority);
  const Trajectory& trajectory = item.trajectory;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    const auto column = writer->Begin(6);
    for (uint32_t s = 0; s < trajectory.num_slices(c); ++s) {
      const SliceView slice = trajectory.slice(c, s);
      WriteSlice({slice.chunk->id(), slice.chunk_column, slice.offset, slice.length}, writer);
    }
    writer->Bool(2, trajectory.squeeze(c));
    writer->End(column);
  }
  if (structure) writer->AlwaysUint(7, *structure);
  writer->End(nested);
}

}  // namespace

WireMessage EncodeInsertHello(const Hello& hello) {
  WireWriter writer;
  const auto nested = writer.Begin(1);
  WriteHello(hello, &writer);
  writer.End(nested);
  return writer.Finish();
}

Result<Hello> DecodeInsertHello(ByteSlices slices, const WireLimits& limits) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kRequest, limits));
  std::optional<Hello> hello;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseHello(reader.ReadMessage(), limits, &hello.emplace()));
        break;
      case 2:
      case 3:
      case 4:
      case 5:
      case 15:
        return Status::InvalidArgument(
            "message InsertRequest: the first message of a stream may only greet, but it has "
            "field " +
            Number(reader.field()));
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kRequest));
  if (!hello) return Status::InvalidArgument("message InsertRequest: the first of a stream must greet");
  return *std::move(hello);
}

// --- InsertEncoder ---

WireMessage InsertEncoder::Encode(const InsertMessage& message) {
  WireWriter writer(64 * message.items.size() + 64, encoding_);
  std::vector<Chunk*> fresh;
  const size_t structures = structures_.size();
  const std::string* table = nullptr;
  const ItemStructure none;
  const ItemStructure* structure = &none;
  for (const Item& item : message.items) {
    std::optional<uint32_t> number;
    if (!item.structure.IsCopyOf(*structure)) number = NumberOf(item.structure);
    WriteItem(item, table == nullptr || *table != item.table, number, &writer);
    table = &item.table;
    structure = &item.structure;
    item.trajectory.ForEachChunk([&](Chunk* chunk) {
      if (!sent_.insert(chunk->id()).second) return;
      fresh.push_back(chunk);
      largest_sent_ = std::max(largest_sent_, chunk->id());
    });
  }
  std::vector<uint64_t> forgotten;
  for (uint64_t id : message.forget_chunks) {
    if (sent_.erase(id) != 0) forgotten.push_back(id);
  }
  writer.PackedUint(3, forgotten);
  writer.Bool(4, message.heartbeat);
  for (size_t i = structures; i < structures_.size(); ++i) writer.Bytes(5, structures_[i].encoded());
  // Without it, the bytes would be moved several times while they grow.
  size_t chunk_bytes = 0;
  for (const Chunk* chunk : fresh) {
    chunk_bytes += HeaderBytes(chunk->header());
    if (chunk->payload_size() < kShareBytes) chunk_bytes += chunk->payload_size();
  }
  writer.ReserveBytes(chunk_bytes);
  for (Chunk* chunk : fresh) WriteChunk(chunk, chunk->id(), &writer);
  return writer.Finish();
}

uint32_t InsertEncoder::NumberOf(const ItemStructure& structure) {
  if (!structure) return 0;
  const auto number = [&](auto found) { return static_cast<uint32_t>(found - structures_.begin() + 1); };
  const auto copy =
      std::ranges::find_if(structures_, [&](const auto& each) { return each.IsCopyOf(structure); });
  if (copy != structures_.end()) return number(copy);
  const auto equal = std::ranges::find(structures_, structure);
  if (equal != structures_.end()) {
    *equal = structure;  // the next look-up finds it by identity
    return number(equal);
  }
  if (structures_.size() >= WireLimits().max_structures) return 0;
  structures_.push_back(structure);
  return static_cast<uint32_t>(structures_.size());
}

uint64_t InsertEncoder::NewBytes(const Trajectory& trajectory) const {
  uint64_t bytes = 40;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) bytes += 4 + 20 * trajectory.num_slices(c);
  trajectory.ForEachChunk([&](const Chunk* chunk) {
    const bool is_new = chunk->id() > largest_sent_ || !sent_.contains(chunk->id());
    if (is_new) bytes += HeaderBytes(chunk->header()) + chunk->payload().size();
  });
  return bytes;
}

// --- InsertDecoder ---

Status InsertDecoder::ParseChunkHeader(ProtoReader reader, uint64_t* id, ProtoReader* payload) {
  header_.episode_id = 0;
  header_.first_step = header_.last_step = 0;
  header_.rows = 0;
  size_t num_columns = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(id);
        break;
      case 2:
        reader.Read(&header_.episode_id);
        break;
      case 3:
        reader.ReadSint(&header_.first_step);
        break;
      case 4:
        reader.ReadSint(&header_.last_step);
        break;
      case 5:
        reader.Read(&header_.rows);
        break;
      case 6: {
        if (num_columns >= limits_.chunk.max_columns) {
          return TooMany("Chunk", "columns", limits_.chunk.max_columns);
        }
        const ProtoReader column = reader.ReadMessage();
        if (reader.ok()) REVERB_RETURN_IF_ERROR(ParseChunkColumn(column, num_columns++));
        break;
      }
      case 15:
        *payload = reader.ReadMessage();
        break;
    }
  }
  header_.columns.resize(num_columns);
  column_messages_.resize(num_columns);
  return reader.status("Chunk");
}

Status InsertDecoder::ParseChunkColumn(ProtoReader reader, size_t index) {
  if (index == header_.columns.size()) {
    header_.columns.emplace_back();
    column_messages_.emplace_back();
  }
  ColumnHeader& column = header_.columns[index];
  std::string& last = column_messages_[index];
  const std::string_view bytes = reader.RestInOnePiece();
  constexpr size_t kChecksumBytes = sizeof(uint64_t);
  if (!last.empty() && bytes.size() == last.size() &&
      std::memcmp(bytes.data(), last.data(), bytes.size() - kChecksumBytes) == 0) {
    std::memcpy(&column.blocks[0].checksum, bytes.data() + bytes.size() - kChecksumBytes, kChecksumBytes);
    return Status::Ok();
  }
  last.clear();
  Reset(&column);
  REVERB_RETURN_IF_ERROR(ParseColumnHeader(reader, &column));
  if (column.blocks.size() != 1 || bytes.size() > kMaxKeptColumnBytes || bytes.size() <= kChecksumBytes) {
    return Status::Ok();
  }
  // Keeps the column if it ends with the checksum of its block, which is so if other bytes there are another checksum.
  std::string other(bytes);
  for (size_t i = other.size() - kChecksumBytes; i < other.size(); ++i)
    other[i] = static_cast<char>(~other[i]);
  ColumnHeader other_column;
  if (ParseColumnHeader(ProtoReader(other), &other_column).ok() && other_column.blocks.size() == 1 &&
      other_column.blocks[0].checksum == ~column.blocks[0].checksum) {
    last = bytes;
  }
  return Status::Ok();
}

Status InsertDecoder::ParseChunk(ProtoReader reader, uint64_t* id, ProtoReader* payload) {
  REVERB_RETURN_IF_ERROR(ParseChunkHeader(reader, id, payload));
  if (payload->remaining() > limits_.max_chunk_bytes) {
    return Status::ResourceExhausted("chunk " + Number(*id) + " has " + Number(payload->remaining()) +
                                     " bytes, at most " + Number(limits_.max_chunk_bytes) +
                                     " are accepted; write shorter chunks");
  }
  if (PayloadSize(header_) == payload->remaining()) return Status::Ok();
  return Status::DataLoss("chunk " + Number(*id) + ": its header describes " + Number(PayloadSize(header_)) +
                          " payload bytes, but there are " + Number(payload->remaining()))
      .WithDetail(Detail::kCorruptData);
}

Result<ChunkRef> InsertDecoder::CopyChunk(uint64_t id, ProtoReader payload) {
  const auto where = [&] { return "chunk " + Number(id); };
  uint8_t* room = nullptr;
  Result<ChunkRef> chunk = make_chunk_(header_, &room);
  if (!chunk.ok()) return chunk.status().Prefixed(where());
  payload.CopyRest(room);
  const PackedChunkHeader packed = (*chunk)->header();
  for (uint32_t i = 0; i < packed.num_columns(); ++i) {
    const Status status = VerifyChecksums(packed.column(i), (*chunk)->column_payload(i));
    if (!status.ok()) return status.Prefixed(where() + ", column " + Number(i));
  }
  return chunk;
}

Result<ChunkRef> InsertDecoder::ReadChunk(ProtoReader reader, uint64_t* id) {
  ProtoReader payload;
  REVERB_RETURN_IF_ERROR(ParseChunk(reader, id, &payload));
  return CopyChunk(*id, payload);
}

Status InsertDecoder::AddChunk(ProtoReader reader) {
  uint64_t id = 0;
  ProtoReader payload;
  const size_t encoded_bytes = reader.remaining();
  REVERB_RETURN_IF_ERROR(ParseChunk(reader, &id, &payload));
  const auto where = [&] { return "chunk " + Number(id); };
  if (window_.contains(id)) {
    return Status::InvalidArgument(where() + " was sent before and not forgotten; send a chunk once");
  }
  // Checked before the payload is allocated, and again with the header, which may be the larger part.
  const auto fits = [&](uint64_t bytes) {
    return window_.size() < limits_.max_window_chunks &&
           bytes <= limits_.max_window_bytes - std::min(limits_.max_window_bytes, window_bytes_);
  };
  const auto too_much = [&] {
    return Status::ResourceExhausted(
        where() + ": the window of the stream holds " + Number(window_.size()) + " chunks of " +
        Number(window_bytes_) + " bytes; at most " + Number(limits_.max_window_chunks) + " chunks and " +
        Number(limits_.max_window_bytes) + " bytes are accepted; forget chunks that are no longer needed");
  };
  if (!fits(payload.remaining())) return too_much();
  const size_t payload_bytes = payload.remaining();
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, CopyChunk(id, payload));
  if (!fits(static_cast<uint64_t>(chunk->bytes()))) return too_much();
  window_bytes_ += static_cast<uint64_t>(chunk->bytes());
  window_.emplace(id, std::move(chunk));
  if (encoded_bytes - payload_bytes > kMaxKeptHeaderBytes) {
    header_ = {};
    column_messages_ = {};
  }
  return Status::Ok();
}

Status InsertDecoder::ParseItem(ProtoReader reader, size_t* slices_left, const Item* before, Item* item) {
  std::optional<uint32_t> structure;
  columns_.Clear();
  const std::function<Chunk*(uint64_t)> resolve = [&](uint64_t id) -> Chunk* {
    const auto it = window_.find(id);
    return it == window_.end() ? nullptr : it->second.get();
  };
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&item->number);
        break;
      case 2:
        reader.ReadFixed(&item->key);
        break;
      case 3:
        reader.Read(&item->table, limits_.max_name_bytes);
        break;
      case 4:
        reader.Read(&item->priority);
        break;
      case 6:
        REVERB_RETURN_IF_ERROR(ParseNextColumn(&reader, "Item", resolve, slices_left, limits_, &columns_));
        break;
      case 7:
        reader.Read(&structure.emplace());
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("Item"));
  if (before != nullptr && item->table.empty()) item->table = before->table;
  if (!structure) {
    if (before != nullptr) item->structure = before->structure;
  } else if (*structure > structures_.size()) {
    return Status::InvalidArgument("names structure " + Number(*structure) + ", but the stream has brought " +
                                   Number(structures_.size()));
  } else if (*structure > 0) {
    item->structure = structures_[*structure - 1];
  }
  if (item->table.empty()) return Status::InvalidArgument("names no table, and there is no item before it");
  if (item->number <= last_number_) {
    return Status::InvalidArgument("comes after number " + Number(last_number_) +
                                   "; numbers start at 1 and grow");
  }
  last_number_ = item->number;
  REVERB_ASSIGN_OR_RETURN(item->trajectory, Trajectory::Create(columns_.specs()));
  return Status::Ok();
}

Result<InsertMessage> InsertDecoder::Decode(ByteSlices slices) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kRequest, limits_));
  InsertMessage message;
  // Chunks come after the items that refer to them.
  std::vector<ProtoReader> items;
  size_t num_chunks = 0;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        return Status::InvalidArgument("message InsertRequest: greets again; only the first one does");
      case 2:
        if (items.size() >= limits_.max_items) return TooMany(kRequest, "items", limits_.max_items);
        items.push_back(reader.ReadMessage());
        break;
      case 3:
        reader.ReadVarints([&](uint64_t id) { message.forget_chunks.push_back(id); });
        if (message.forget_chunks.size() > limits_.max_window_chunks) {
          return TooMany(kRequest, "chunks to forget", limits_.max_window_chunks);
        }
        break;
      case 4:
        reader.Read(&message.heartbeat);
        break;
      case 5: {
        const size_t number = structures_.size() + 1;
        if (number > limits_.max_structures) return TooMany(kRequest, "structures", limits_.max_structures);
        std::string bytes;
        reader.Read(&bytes, ItemStructure::kMaxBytes);
        if (!reader.ok()) break;
        Result<ItemStructure> structure = ItemStructure::Decode(bytes);
        if (!structure.ok()) return structure.status().Prefixed("structure " + Number(number));
        structures_.push_back(*std::move(structure));
        break;
      }
      case 15: {
        if (++num_chunks > limits_.max_chunks) return TooMany(kRequest, "chunks", limits_.max_chunks);
        const ProtoReader chunk = reader.ReadMessage();
        reader.PrefetchNext();
        if (reader.ok()) REVERB_RETURN_IF_ERROR(AddChunk(chunk));
        break;
      }
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kRequest));

  message.items.resize(items.size());
  size_t slices_left = limits_.max_slices;
  for (size_t i = 0; i < items.size(); ++i) {
    Item& item = message.items[i];
    const Item* const before = i == 0 ? nullptr : &message.items[i - 1];
    const Status status = ParseItem(items[i], &slices_left, before, &item);
    if (!status.ok()) {
      return status.Prefixed("item " + Number(i) + " (number " + Number(item.number) + ")");
    }
  }
  columns_.Clear();  // they refer to chunks
  for (uint64_t id : message.forget_chunks) {
    const auto it = window_.find(id);
    if (it == window_.end()) {
      return Status::InvalidArgument("message InsertRequest: chunk " + Number(id) +
                                     " cannot be forgotten: it is not known here");
    }
    window_bytes_ -= static_cast<uint64_t>(it->second->bytes());
    window_.erase(it);
  }
  return message;
}

}  // namespace reverb::internal
