// wire.h — the messages as bytes: protobuf messages of proto/reverb/v1, without the protobuf library.
//
// Encoders turn a value into a WireMessage, which refers to large payloads instead of copying them; what
// they are given is theirs to trust. Decoders read bytes from anywhere: lengths, limits, references,
// headers and checksums are checked in full; a payload is copied once, to where it stays. Memory is
// proportional to the size of the message. docs/protocol.md tells how the messages are used.
//
// Errors of decoders: DATA_LOSS when bytes are no such message or damaged; INVALID_ARGUMENT when the
// message breaks a rule of the protocol; RESOURCE_EXHAUSTED when it exceeds a limit. After one, the
// stream is to be ended.
//
// Threads: free functions without state; InsertEncoder and InsertDecoder belong to one thread at a time.
#ifndef REVERB_TRANSPORT_WIRE_H_
#define REVERB_TRANSPORT_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "reverb/status.h"
#include "tensor/chunk.h"
#include "tensor/column.h"
#include "tensor/trajectory.h"
#include "transport/messages.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

// What decoders accept. Encoders do not look at it: whoever fills a message keeps to the peer's limits.
struct WireLimits {
  uint64_t max_message_bytes = uint64_t{256} << 20;
  // Stored bytes of a chunk, or of a piece of a reply.
  uint64_t max_chunk_bytes = uint64_t{256} << 20;
  // In one message: items or samples or tables; chunks or pieces; slices of all items; updates of
  // priorities; keys.
  size_t max_items = size_t{1} << 16;
  size_t max_chunks = size_t{1} << 16;
  size_t max_slices = size_t{1} << 20;
  size_t max_updates = size_t{1} << 20;
  // Of one item.
  size_t max_columns = size_t{1} << 14;
  // Names of tables, clients, servers.
  size_t max_name_bytes = size_t{1} << 10;
  // Texts for people, paths.
  size_t max_text_bytes = size_t{1} << 16;
  size_t max_signature_bytes = size_t{1} << 24;
  // Structures of items that one insert stream may bring.
  size_t max_structures = 16;
  // What one insert stream may keep alive by not forgetting it.
  uint64_t max_window_bytes = uint64_t{1} << 30;
  size_t max_window_chunks = size_t{1} << 20;
  // Raw bytes, rows and columns of a chunk.
  DecodeLimits chunk;
};

// --- Insert ---

// The first message of an insert stream.
WireMessage EncodeInsertHello(const Hello& hello);
Result<Hello> DecodeInsertHello(ByteSlices slices, const WireLimits& limits = {});

// The writing end of one insert stream. Sends a chunk with the first item that refers to it, and not
// again until it was forgotten.
class InsertEncoder {
 public:
  // REQUIRES: no trajectory is empty; ids of chunks are unique among the chunks of this stream. Of the
  // chunks to forget only those that the peer knows are sent.
  WireMessage Encode(const InsertMessage& message);

  // Bytes that Encode will give for a message with just this item and nothing else, more or less: its
  // chunks that were not sent yet, and a little.
  uint64_t NewBytes(const Trajectory& trajectory) const;

  size_t window_chunks() const { return sent_.size(); }

 private:
  // 0 for none, and for those that are too many.
  uint32_t NumberOf(const ItemStructure& structure);

  absl::flat_hash_set<uint64_t> sent_;
  std::vector<ItemStructure> structures_;  // number 1 is the first
};

// The reading end of one insert stream.
class InsertDecoder {
 public:
  // Makes the chunk that the payload is copied into. Must refuse what ValidateChunkHeader() refuses, as
  // Chunk::Uninitialized and ChunkStore::AddUninitialized do.
  using ChunkFactory = std::function<Result<ChunkRef>(const ChunkHeader& header, uint8_t** payload)>;

  explicit InsertDecoder(ChunkFactory make_chunk, const WireLimits& limits = {})
      : make_chunk_(std::move(make_chunk)), limits_(limits) {}

  // A message after the first. The trajectories refer to chunks that the factory made.
  Result<InsertMessage> Decode(ByteSlices slices);

  size_t window_chunks() const { return window_.size(); }
  uint64_t window_bytes() const { return window_bytes_; }

 private:
  Status AddChunk(WireReader reader);
  // `before`: the item before it in the message; null for the first.
  Status ParseItem(WireReader reader, size_t* slices_left, const Item* before, Item* item);

  const ChunkFactory make_chunk_;
  const WireLimits limits_;
  absl::flat_hash_map<uint64_t, ChunkRef> window_;
  std::vector<ItemStructure> structures_;  // number 1 is the first
  uint64_t window_bytes_ = 0;
  uint64_t last_number_ = 0;
};

WireMessage EncodeInsertReply(const InsertReply& reply);
Result<InsertReply> DecodeInsertReply(ByteSlices slices, const WireLimits& limits = {});

// --- Sample ---

// What a client says on a sample stream. The greeting comes in the first message, with or without a
// request (which has a table).
struct SampleStreamMessage {
  std::optional<Hello> hello;
  SampleRequest request;
};
WireMessage EncodeSampleRequest(const SampleStreamMessage& message);
Result<SampleStreamMessage> DecodeSampleRequest(ByteSlices slices, const WireLimits& limits = {});

// Data travels as pieces, each a column of rows of its own:
// - rows that are stored raw: only those that are needed. The rows of one column of consecutive samples
//   lie one after the other in one piece, so that a batch of a column arrives in one run. Where much of
//   that would travel several times (overlapping samples), runs of rows travel once instead;
// - compressed rows and strings: the blocks that are touched, each once, as they are stored.
// Slices that follow one another in a piece become one slice.
WireMessage EncodeSampleReply(const SampleReply& reply);
// A response of more than this many bytes travels in parts, so that every gRPC implementation accepts each
// message with its default settings.
inline constexpr uint64_t kMaxPartBytes = (uint64_t{4} << 20) - 1024;
// All parts but the last have at least this many bytes, so that parts cost the receiver little beside them.
inline constexpr uint64_t kMinPartBytes = uint64_t{64} << 10;
// The messages that carry the parts of a response, in order. Seals the response, not those.
std::vector<WireMessage> SplitIntoParts(WireMessage response);

// Each piece becomes a chunk of one column.
// Raw rows of so many bytes and more may stay in the received message until somebody copies them to where
// they are wanted. Smaller ones do not earn the list of parts.
inline constexpr size_t kLeaveBytes = 32 << 10;
// `keeper`, when it owns something, keeps the slices alive: long rows are then not copied but left in them.
Result<SampleReply> DecodeSampleReply(ByteSlices slices, const WireLimits& limits = {},
                                      const Buffer& keeper = {});

// The reading end of one sample stream: DecodeSampleReply, and responses in parts put together.
class SampleReplyDecoder {
 public:
  explicit SampleReplyDecoder(const WireLimits& limits = {}) : limits_(limits) {}

  // Nothing after a part that is not the last. `keeper` must keep the slices alive if the message has
  // kLeaveBytes or more, or is_in_parts().
  Result<std::optional<SampleReply>> Decode(ByteSlices slices, const Buffer& keeper);
  // Whether a part was the last message, and more are to come.
  bool is_in_parts() const { return !parts_.empty(); }

 private:
  // Whether the response is complete.
  Result<bool> AddPart(uint64_t response_bytes, WireReader part, const Buffer& keeper);

  const WireLimits limits_;
  std::vector<ByteSlice> parts_;
  std::vector<Buffer> keepers_;  // of parts_
  uint64_t response_bytes_ = 0;  // that the parts must have together
  uint64_t received_bytes_ = 0;  // of parts_
};

// An upper bound on the bytes of a response with this sample alone.
uint64_t MaxSampleBytes(const Trajectory& trajectory);
// RESOURCE_EXHAUSTED for an item that samplers could not receive: its response would have more than
// `max_bytes`, or more columns or slices than decoders accept. Cheap unless the item is large.
Status CheckItemSize(const Trajectory& trajectory, uint64_t max_bytes, const WireLimits& limits = {});

// --- Single calls ---

WireMessage EncodeMutateRequest(const MutateRequest& request);
Result<MutateRequest> DecodeMutateRequest(ByteSlices slices, const WireLimits& limits = {});

// ResetRequest: the name of a table.
WireMessage EncodeResetRequest(std::string_view table);
Result<std::string> DecodeResetRequest(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeSetRateLimiterRequest(const SetRateLimiterRequest& request);
Result<SetRateLimiterRequest> DecodeSetRateLimiterRequest(ByteSlices slices, const WireLimits& limits = {});

// CheckpointResponse: where it was written.
WireMessage EncodeCheckpointReply(std::string_view path);
Result<std::string> DecodeCheckpointReply(ByteSlices slices, const WireLimits& limits = {});

// InfoResponse. Seeds of selectors do not travel.
WireMessage EncodeServerInfo(const ServerInfo& info);
Result<ServerInfo> DecodeServerInfo(ByteSlices slices, const WireLimits& limits = {});

WireMessage EncodeInspectRequest(const InspectRequest& request);
Result<InspectRequest> DecodeInspectRequest(ByteSlices slices, const WireLimits& limits = {});
// Data as in a SampleReply.
WireMessage EncodeInspectReply(const InspectReply& reply);
Result<InspectReply> DecodeInspectReply(ByteSlices slices, const WireLimits& limits = {});

// The messages without fields: InfoRequest, CheckpointRequest and the empty responses. Fields of newer
// peers are skipped.
WireMessage EncodeEmpty();
Status DecodeEmpty(ByteSlices slices, const WireLimits& limits = {});

// A Status alone, for transports that carry it beside the messages. Very long texts are cut.
WireMessage EncodeStatus(const Status& status);
// OK means that `*status` was read. Codes of newer peers become UNKNOWN.
Status DecodeStatus(ByteSlices slices, Status* status, const WireLimits& limits = {});

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_H_
