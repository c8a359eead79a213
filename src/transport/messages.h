// messages.h — the messages between clients and servers, as values.
//
// They are the interface between client and service. A transport passes them unchanged within one process,
// and encodes them as the messages of proto/reverb/v1 otherwise (wire.h). On both sides, data is trajectories
// over shared chunks; the transport decides how to send a chunk.
#ifndef REVERB_TRANSPORT_MESSAGES_H_
#define REVERB_TRANSPORT_MESSAGES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "reverb/item.h"
#include "reverb/rate_limiter.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "reverb/table_options.h"
#include "tensor/batch_rules.h"
#include "tensor/item.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// The protocol versions that this library supports.
inline constexpr uint32_t kMinProtocolVersion = 1;
inline constexpr uint32_t kMaxProtocolVersion = 1;

// 128 random bits: identifies a writer session, or one run of a server.
using Id128 = std::array<uint8_t, 16>;

// The default maximum size of a response that a sampler accepts, and of an item that a server accepts.
inline constexpr uint64_t kDefaultMaxResponseBytes = uint64_t{1} << 30;

struct Hello {
  uint32_t min_version = kMinProtocolVersion;
  uint32_t max_version = kMaxProtocolVersion;
  Id128 session_id{};  // writers only
  std::string client_name;
  uint64_t receive_window_bytes = 0;  // samplers only; 0 = the server chooses
  uint64_t max_response_bytes = 0;    // samplers only; 0 = kDefaultMaxResponseBytes
};

struct Limits {
  uint64_t max_message_bytes = 0;
  uint64_t max_chunk_bytes = 0;
  uint64_t insert_window_bytes = 0;
  uint64_t max_item_bytes = 0;
};

struct Welcome {
  uint32_t version = kMaxProtocolVersion;
  Id128 server_life_id{};
  std::string server_name;
  uint64_t applied_through = 0;  // writers only
  Limits limits;
};

// --- Insert ---

struct InsertMessage {
  std::vector<Item> items;
  std::vector<uint64_t> forget_chunks;  // ids of chunks that no later item refers to
  bool heartbeat = false;
};

struct Rejection {
  uint64_t number = 0;
  Status status;
};

struct WaitState {
  std::string table;
  WaitReason reason = WaitReason::kNone;
  Duration waited{0};
  std::string text;
};

struct InsertReply {
  std::optional<Welcome> welcome;
  uint64_t confirmed_through = 0;
  std::vector<Rejection> rejections;
  std::optional<WaitState> waiting;
};

// --- Sample ---

struct SampleRequest {
  uint64_t request_id = 0;
  std::string table;
  int64_t count = 0;
  std::optional<Duration> timeout;  // of the rate limiter; absent = wait forever, zero = try once
  uint64_t taken_bytes = 0;         // bytes of replies consumed since the last message
  bool shared_columns = false;      // replies may send the column layout once for all samples
  BatchRules rules = {};
};

struct SampleReply {
  std::optional<Welcome> welcome;
  uint64_t request_id = 0;
  std::vector<Sample> samples;
  std::optional<Status> end;    // set in the last reply to a request
  bool shared_columns = false;  // copied from the request
};

// --- Single calls ---

struct MutateRequest {
  std::string table;
  std::vector<KeyPriority> updates;
  std::vector<uint64_t> deletes;
};

struct SetRateLimiterRequest {
  std::string table;
  RateLimiterOptions options;
};

struct CreateTableRequest {
  TableInfo table;        // its settings count, the rest is ignored
  bool exist_ok = false;  // a table of that name with the same settings is no error
};

struct ChangeTableRequest {
  std::string table;
  TableChanges changes;
};

struct InspectRequest {
  std::string table;
  uint64_t cursor = 0;  // 0 = from the start
  uint32_t count = 0;
};

struct InspectReply {
  uint64_t next_cursor = 0;  // 0 = the end
  std::vector<Sample> items;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_MESSAGES_H_
