// wire.h — encodes messages as the protobuf messages of proto/reverb/v1, without the protobuf library.
//
// Encoders turn a value into a WireMessage, which refers to large payloads instead of copying them; they
// trust their input. Decoders read untrusted bytes, which may be in memory that the sender can still write to:
// they check lengths, limits, references, headers and checksums in full (but see RowChecksums), and copy a
// payload once, to its final place, before they verify it. Memory is proportional to the size of the
// message. docs/protocol.md describes how the messages are used.
//
// Errors of decoders: DATA_LOSS when the bytes are not such a message or damaged; INVALID_ARGUMENT when the
// message violates a rule of the protocol; RESOURCE_EXHAUSTED when it exceeds a limit. After an error the
// stream must be ended.
//
// Threads: free functions without state; InsertEncoder and InsertDecoder belong to one thread at a time.
#ifndef REVERB_TRANSPORT_WIRE_H_
#define REVERB_TRANSPORT_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "reverb/status.h"
#include "tensor/chunk.h"
#include "tensor/column.h"
#include "tensor/proto_reader.h"
#include "tensor/trajectory.h"
#include "transport/messages.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// What servers put into one reply, as the bytes of its items or rows when they are decoded; only one that is larger alone
// exceeds it. Further ones follow in other replies. Clients accept at least as much.
inline constexpr uint64_t kDecodedBytesPerReply = uint64_t{256} << 20;

// Limits that decoders enforce. Encoders ignore them: the caller observes the limits of the peer.
struct WireLimits {
  uint64_t max_message_bytes = uint64_t{256} << 20;
  // Stored bytes of a chunk, or of a piece of a reply.
  uint64_t max_chunk_bytes = uint64_t{256} << 20;
  // In one message: items, samples or tables; chunks; slices of all items, or pieces; priority updates or
  // keys.
  size_t max_items = size_t{1} << 16;
  size_t max_chunks = size_t{1} << 16;
  size_t max_slices = size_t{1} << 20;
  size_t max_updates = size_t{1} << 20;
  // Of one item.
  size_t max_columns = size_t{1} << 14;
  // Names of tables, clients, servers.
  size_t max_name_bytes = size_t{1} << 10;
  // Error messages, paths.
  size_t max_text_bytes = size_t{1} << 16;
  size_t max_signature_bytes = size_t{1} << 24;
  // Item structures of one insert stream.
  size_t max_structures = 16;
  // Chunks that one insert stream keeps alive until it forgets them.
  uint64_t max_window_bytes = uint64_t{1} << 30;
  size_t max_window_chunks = size_t{1} << 20;
  // Bytes of one item when it is decoded, and of all items of a reply: compressed data, or rows that an item names
  // many times, can become far larger than the message.
  uint64_t max_decoded_item_bytes = uint64_t{4} << 30;
  uint64_t max_decoded_reply_bytes = uint64_t{8} << 30;
  // Raw bytes, rows and columns of a chunk.
  DecodeLimits chunk;
};

// The columns of one item after the other. Keeps their memory for the next item, as long as it is little: an
// item of one column would otherwise take two allocations.
class ColumnSpecs {
 public:
  // Returns a new column without slices.
  ColumnSpec* Add() {
    if (size_ == columns_.size()) columns_.emplace_back();
    return &columns_[size_++];
  }
  void Clear() {
    for (ColumnSpec& column : std::span(columns_).first(size_)) {
      column.squeeze = false;
      column.slices.clear();
      if (column.slices.capacity() > kMaxKept) column.slices = {};
    }
    if (columns_.size() > kMaxKept) columns_ = {};
    size_ = 0;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const ColumnSpec> specs() const { return std::span(columns_).first(size_); }

 private:
  static constexpr size_t kMaxKept = 64;
  std::vector<ColumnSpec> columns_;  // those from size_ on have no slices
  size_t size_ = 0;
};

// --- Insert ---

// The first message of an insert stream.
WireMessage EncodeInsertHello(const Hello& hello);
Result<Hello> DecodeInsertHello(ByteSlices slices, const WireLimits& limits = {});

// The sending side of one insert stream. Sends a chunk with the first item that refers to it, and not again
// until it was forgotten.
class InsertEncoder {
 public:
  explicit InsertEncoder(const WireEncoding& encoding = {}) : encoding_(encoding) {}

  // REQUIRES: no trajectory is empty; the IDs of chunks are unique on this stream. Of the chunks to forget,
  // only those that the peer knows are sent.
  WireMessage Encode(const InsertMessage& message);

  // Estimates the size of a message with only this item: its chunks that were not sent yet, and a little
  // more.
  uint64_t NewBytes(const Trajectory& trajectory) const;

  size_t window_chunks() const { return sent_.size(); }

 private:
  // Returns 0 for no structure, and for those beyond the maximum.
  uint32_t NumberOf(const ItemStructure& structure);

  const WireEncoding encoding_;
  absl::flat_hash_set<uint64_t> sent_;
  uint64_t largest_sent_ = 0;  // ID of a chunk that was sent; most chunks come in the order of their IDs
  std::vector<ItemStructure> structures_;  // number 1 is the first
};

// The receiving side of one insert stream.
class InsertDecoder {
 public:
  // Creates the chunk that the payload is copied into. Must reject what ValidateChunkHeader() rejects, as
  // Chunk::Uninitialized and ChunkStore::AddUninitialized do.
  using ChunkFactory = std::function<Result<ChunkRef>(const ChunkHeader& header, uint8_t** payload)>;

  explicit InsertDecoder(ChunkFactory make_chunk, const WireLimits& limits = {})
      : make_chunk_(std::move(make_chunk)), limits_(limits) {}

  // Decodes a message after the first. The trajectories refer to chunks that the factory created.
  Result<InsertMessage> Decode(ByteSlices slices);

  // Reads a Chunk of another message, which does not become part of the window.
  Result<ChunkRef> ReadChunk(ProtoReader reader, uint64_t* id);

  size_t window_chunks() const { return window_.size(); }
  uint64_t window_bytes() const { return window_bytes_; }

 private:
  Status AddChunk(ProtoReader reader);
  // Reads all of a Chunk but its payload into header_, and checks its size.
  Status ParseChunk(ProtoReader reader, uint64_t* id, ProtoReader* payload);
  // Creates the chunk of header_, copies the payload and verifies it.
  Result<ChunkRef> CopyChunk(uint64_t id, ProtoReader payload);
  // Reads all of a Chunk but its payload into header_.
  Status ParseChunkHeader(ProtoReader reader, uint64_t* id, ProtoReader* payload);
  // `before`: the item before it in the message; null for the first.
  Status ParseItem(ProtoReader reader, size_t* slices_left, const Item* before, Item* item);

  // Reads a column of header_.
  Status ParseChunkColumn(ProtoReader reader, size_t index);

  const ChunkFactory make_chunk_;
  const WireLimits limits_;
  // Reused for each chunk and item.
  ChunkHeader header_;
  // The message that a column of header_ was read from, if it ends with the checksum of its only block; else empty. Most
  // chunks of a stream differ in nothing but that.
  std::vector<std::string> column_messages_;
  ColumnSpecs columns_;
  absl::flat_hash_map<uint64_t, ChunkRef> window_;
  std::vector<ItemStructure> structures_;  // number 1 is the first
  uint64_t window_bytes_ = 0;
  uint64_t last_number_ = 0;
};

WireMessage EncodeInsertReply(const InsertReply& reply);
Result<InsertReply> DecodeInsertReply(ByteSlices slices, const WireLimits& limits = {});

// --- Sample ---

// A message of a client on a sample stream. The first one has a hello, with or without a request (which has a
// table).
struct SampleStreamMessage {
  std::optional<Hello> hello;
  SampleRequest request;
};
WireMessage EncodeSampleRequest(const SampleStreamMessage& message);
Result<SampleStreamMessage> DecodeSampleRequest(ByteSlices slices, const WireLimits& limits = {});

// Data is sent as pieces, each a column of rows:
// - rows that are stored raw: only the required ones. The rows of one column of consecutive samples are
//   contiguous in one piece, so that a batch of a column arrives in one run. Where this would send many rows
//   several times (overlapping samples), runs of rows are sent once instead;
// - compressed rows and strings: the blocks that are used, each once, as they are stored.
// Slices that are adjacent in a piece become one slice.
WireMessage EncodeSampleReply(const SampleReply& reply, const WireEncoding& encoding = {});
// A larger response is sent in parts, so that every gRPC implementation accepts each message with its default
// settings.
inline constexpr uint64_t kMaxPartBytes = (uint64_t{4} << 20) - 1024;
// The minimum size of all parts but the last, which bounds the overhead of parts for the receiver.
inline constexpr uint64_t kMinPartBytes = uint64_t{64} << 10;
// Returns the messages that carry the parts of a response, in order. Seals the response, not these messages.
std::vector<WireMessage> SplitIntoParts(WireMessage response);

// Raw rows of this many bytes and more may stay in the received message until they are copied to their
// destination. For fewer bytes the list of parts does not pay off.
inline constexpr size_t kLeaveBytes = 32 << 10;
// Whether raw rows of samples may have no checksum, i.e. 0 (WireEncoding::row_checksums).
enum class RowChecksums : uint8_t { kRequired, kOptional };
// Turns each piece into a chunk of one column. If `keeper` owns the slices, long rows stay in them instead of
// being copied. Fails if the keeper has lost the bytes (Buffer::CheckValid) when all others are copied.
Result<SampleReply> DecodeSampleReply(ByteSlices slices, const WireLimits& limits = {},
                                      const Buffer& keeper = {},
                                      RowChecksums row_checksums = RowChecksums::kRequired);

// The receiving side of one sample stream: DecodeSampleReply for messages and for responses in parts.
class SampleReplyDecoder {
 public:
  explicit SampleReplyDecoder(const WireLimits& limits = {},
                              RowChecksums row_checksums = RowChecksums::kRequired)
      : limits_(limits), row_checksums_(row_checksums) {}

  // Returns nothing after a part that is not the last. `keeper` must keep the slices alive if the message has
  // kLeaveBytes or more, or is_in_parts().
  Result<std::optional<SampleReply>> Decode(ByteSlices slices, const Buffer& keeper);
  // Returns whether the last message was a part and more parts are expected.
  bool is_in_parts() const { return !parts_.empty(); }

 private:
  // Returns whether the response is complete.
  Result<bool> AddPart(uint64_t response_bytes, ProtoReader part, const Buffer& keeper);

  const WireLimits limits_;
  const RowChecksums row_checksums_;
  std::vector<ByteSlice> parts_;
  std::vector<Buffer> keepers_;  // of parts_
  uint64_t response_bytes_ = 0;  // of all parts together
  uint64_t received_bytes_ = 0;  // of parts_
};

// Returns an upper bound on the bytes of a response with only this sample.
uint64_t MaxSampleBytes(const Trajectory& trajectory);
// Returns RESOURCE_EXHAUSTED for an item that samplers could not receive: its response would have more than
// `max_bytes`, or more columns, slices or decoded bytes than decoders accept. Cheap unless the item is large.
Status CheckItemSize(const Trajectory& trajectory, uint64_t max_bytes, const WireLimits& limits = {});

// --- Single calls ---

WireMessage EncodeSettleLeasesRequest(const SettleLeasesRequest& request);
Result<SettleLeasesRequest> DecodeSettleLeasesRequest(ByteSlices slices, const WireLimits& limits = {});
// SettleLeasesResponse.
WireMessage EncodeLeaseOutcome(const LeaseOutcome& outcome);
Result<LeaseOutcome> DecodeLeaseOutcome(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeMutateRequest(const MutateRequest& request);
Result<MutateRequest> DecodeMutateRequest(ByteSlices slices, const WireLimits& limits = {});

// ResetRequest: the name of a table.
WireMessage EncodeResetRequest(std::string_view table);
Result<std::string> DecodeResetRequest(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeSetRateLimiterRequest(const SetRateLimiterRequest& request);
Result<SetRateLimiterRequest> DecodeSetRateLimiterRequest(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeCreateTableRequest(const CreateTableRequest& request);
Result<CreateTableRequest> DecodeCreateTableRequest(ByteSlices slices, const WireLimits& limits = {});

// RemoveTableRequest: the name of a table.
WireMessage EncodeRemoveTableRequest(std::string_view table);
Result<std::string> DecodeRemoveTableRequest(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeChangeTableRequest(const ChangeTableRequest& request);
Result<ChangeTableRequest> DecodeChangeTableRequest(ByteSlices slices, const WireLimits& limits = {});

// CheckpointResponse: the path of the checkpoint.
WireMessage EncodeCheckpointReply(std::string_view path);
Result<std::string> DecodeCheckpointReply(ByteSlices slices, const WireLimits& limits = {});

// InfoResponse. Seeds of selectors are not sent.
WireMessage EncodeServerInfo(const ServerInfo& info);
Result<ServerInfo> DecodeServerInfo(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeInspectRequest(const InspectRequest& request);
Result<InspectRequest> DecodeInspectRequest(ByteSlices slices, const WireLimits& limits = {});
// Data as in a SampleReply.
WireMessage EncodeInspectReply(const InspectReply& reply, const WireEncoding& encoding = {});
Result<InspectReply> DecodeInspectReply(ByteSlices slices, const WireLimits& limits = {},
                                        RowChecksums row_checksums = RowChecksums::kRequired);

// --- Row tables ---

WireMessage EncodeRowsRequest(const RowsRequest& request, const WireEncoding& encoding = {});
// The chunks of the rows are created by `make_chunk`; see InsertDecoder.
Result<RowsRequest> DecodeRowsRequest(ByteSlices slices, const InsertDecoder::ChunkFactory& make_chunk,
                                      const WireLimits& limits = {});
// RowsResponse. Only the first rows_with_data rows have data: a piece for each segment.
WireMessage EncodeRowsReply(const RowsReply& reply, const WireEncoding& encoding = {});
// `keeper`, `row_checksums`: see DecodeSampleReply.
Result<RowsReply> DecodeRowsReply(ByteSlices slices, const WireLimits& limits = {}, const Buffer& keeper = {},
                                  RowChecksums row_checksums = RowChecksums::kRequired);

// The messages without fields: InfoRequest, CheckpointRequest and the empty responses. Fields of newer
// peers are skipped.
WireMessage EncodeEmpty();
Status DecodeEmpty(ByteSlices slices, const WireLimits& limits = {});

// A Status alone, for transports that send it separately. Very long texts are truncated.
WireMessage EncodeStatus(const Status& status);
// Returns OK when `*status` was read. Codes of newer peers become UNKNOWN.
Status DecodeStatus(ByteSlices slices, Status* status, const WireLimits& limits = {});

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_H_
