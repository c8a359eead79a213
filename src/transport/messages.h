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
#include "reverb/lease.h"
#include "reverb/rate_limiter.h"
#include "reverb/row_table_options.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/table_info.h"
#include "reverb/table_options.h"
#include "tensor/batch_rules.h"
#include "tensor/item.h"
#include "tensor/row.h"
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
  uint32_t shard = 0;  // of the server, see ShardOf(); 0 = unknown
};

// A key carries the shard of the server that its item was sent to in its upper 16 bits, so that clients of
// several servers find the owner of an item. Shards are 1 to 65535; 0 = none.
inline constexpr uint32_t kMaxShard = 0xFFFF;
inline constexpr int kShardBit = 48;
constexpr uint32_t ShardOf(uint64_t key) { return static_cast<uint32_t>(key >> kShardBit); }
// Returns the key with the shard of the server; unchanged if that is unknown.
constexpr uint64_t WithShard(uint64_t key, uint32_t shard) {
  constexpr uint64_t kRest = (uint64_t{1} << kShardBit) - 1;
  return shard == 0 ? key : (key & kRest) | uint64_t{shard} << kShardBit;
}

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
  uint64_t insert_window_bytes = 0;  // replaces that of the welcome from here on; 0 = unchanged
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
  Duration lease{0};        // above 0: the samples are leased for this long
  bool end_stream = false;  // draw nothing more and close the stream; all else is ignored
  // Replies carry the table's mass. A request that wants it may have a count of 0: nothing is drawn.
  bool wants_mass = false;
};

// How much of a set of servers a table is: samplers choose a server in proportion to the masses.
struct TableMass {
  bool is_weighted = false;  // false: items are picked in an order, and `mass` is 0
  double mass = 0;           // the sum of the weights in proportion to which items are picked
  int64_t size = 0;          // items
};

struct SampleReply {
  std::optional<Welcome> welcome;
  uint64_t request_id = 0;
  std::vector<Sample> samples;
  std::optional<Status> end;           // set in the last reply to a request
  bool shared_columns = false;         // copied from the request
  std::optional<TableMass> mass = {};  // after the draw, if the request wants it
};

// --- Single calls ---

struct MutateRequest {
  std::string table;
  std::vector<KeyPriority> updates;
  std::vector<uint64_t> deletes;
};

struct SettleLeasesRequest {
  std::string table;
  std::vector<LeaseGrant> acks;
  std::vector<LeaseGrant> releases;
  std::vector<LeaseGrant> extends;
  Duration extension{0};  // of `extends`, from now
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

// --- Row tables: one call for all operations ---

// The numbers are sent: never change them.
enum class RowsVerb : uint8_t {
  kNone = 0,
  kPut = 1,
  kClaim = 2,
  kSettle = 3,
  kGet = 4,
  kList = 5,
  kDelete = 6,
  kEnd = 7,
  kSetVersion = 8,
  kReserve = 9,
  kCancelReservation = 10,
  kInfo = 11,
  kCreateTable = 12,
  kRemoveTable = 13,
  kSetState = 14,
  kGetState = 15,
  kCancel = 16,
};
inline constexpr uint32_t kNumRowsVerbs = 17;

// What an operation needs besides rows. Each verb uses some of the fields.
struct RowsCall {
  RowsVerb verb = RowsVerb::kNone;
  std::string table;
  std::optional<Duration> timeout = {};  // kPut, kClaim, kReserve; absent = wait forever, zero = try once
  RowWriteMode write = {};               // kPut
  RowClaim claim = {};                   // kClaim; kList, kDelete: its condition; kGet: the columns to select
  std::vector<std::string> keys = {};    // kSettle, kGet, kDelete, kEnd
  uint64_t lease_id = 0;                 // kSettle
  RowSettlement settlement = RowSettlement::kAcknowledge;
  Duration extension{0};  // kSettle
  RowEnding ending = RowEnding::kClose;
  uint64_t cursor = 0;                         // kList
  int64_t count = 0;                           // kList, kReserve
  std::optional<int64_t> version = {};         // kSetVersion, kReserve
  uint64_t reservation = 0;                    // kCancelReservation
  std::optional<RowTableOptions> create = {};  // kCreateTable
  bool exist_ok = false;                       // kCreateTable
  // The caller's state: kSetState; kSettle that acknowledges, kSetVersion: set together with it.
  std::optional<std::string> state = {};
  // kPut, kClaim, kReserve: a random number by which kCancel can end the wait; 0 = it cannot. kCancel: that number.
  uint64_t call_id = 0;
};

// Rows of a put that are encoded when they are needed, so that a transport can send some while the next ones are encoded.
class RowParts {
 public:
  // Returns rows from `*next` on, at least one, and advances `*next`, which is 0 at first and size() after the last part.
  virtual Result<std::vector<RowWrite>> Encode(size_t* next) const = 0;
  virtual size_t size() const = 0;

 protected:
  ~RowParts() = default;
};

struct RowsRequest {
  RowsCall call;
  std::vector<RowWrite> rows = {};  // kPut
  const RowParts* parts =
      nullptr;  // kPut: where the rows come from instead, unless null. Borrowed until the call returns
};
// Returns the request with all of its rows.
Result<RowsRequest> EncodeParts(const RowsRequest& request);

// What an operation returns besides rows.
struct RowsResult {
  int64_t version = 0;                    // of the table
  int64_t count = 0;                      // rows that were stored or deleted
  std::vector<std::string> refused = {};  // keys of rows that are stale or gone
  std::vector<std::string> columns = {};  // that the rows have data of
  uint64_t lease_id = 0;
  LeaseOutcome outcome = {};
  uint64_t cursor = 0;
  uint64_t reservation = 0;
  bool was_known = false;  // kCancelReservation
  std::vector<RowTableInfo> tables = {};
  std::optional<std::string> state = {};  // kGetState
  std::optional<int64_t> step = {};       // of a claim with ranks
};

struct RowsReply {
  RowsResult result;
  std::vector<RowRecord> rows = {};
  // The rows from here on have no data, since the reply would be too large: read them with kGet.
  uint64_t rows_with_data = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_MESSAGES_H_
