// admin_source.h — what the admin port shows of a server, as values, and where it gets them.
#ifndef REVERB_ADMIN_ADMIN_SOURCE_H_
#define REVERB_ADMIN_ADMIN_SOURCE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "access/access_control.h"
#include "reverb/server_info.h"
#include "reverb/status.h"

namespace reverb::internal {

// A client with open streams. Those of one process over the same transport are one client.
struct AdminClient {
  std::string name = {};
  std::string address = {};
  std::string transport = {};  // "local", "grpc", "inproc"
  int64_t writers = 0;
  int64_t samplers = 0;
  std::optional<int64_t> bytes_in = {};  // that the server received from it
  std::optional<int64_t> bytes_out = {};
  std::optional<double> connected_seconds = {};  // of its oldest stream
};

struct AdminTraffic {
  int64_t messages_in = 0;  // that the server received
  int64_t messages_out = 0;
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
};

struct AdminCheckpoints {
  std::string path = {};
  int64_t count = 0;  // written since the start
  int64_t failures = 0;
  bool is_running = false;
  std::optional<double> last_time_seconds = {};  // when the last one was durable, since the Unix epoch
  std::optional<double> last_duration_seconds = {};
  std::optional<int64_t> last_bytes = {};      // that the last one wrote
  std::optional<std::string> last_error = {};  // of the latest attempt, if it failed
  std::optional<int64_t> disk_free_bytes = {};
};

// Counts of values by size: as many as bounds, and one more for those above the last bound.
struct AdminHistogram {
  std::vector<double> bounds = {};  // upper, inclusive
  std::vector<int64_t> counts = {};
  double sum = 0;
};

// Distributions over the items of a table, from a sample of them, scaled to its size.
struct AdminSurvey {
  AdminHistogram age_seconds;
  AdminHistogram times_sampled;
  AdminHistogram priority;
};

struct AdminState {
  ServerInfo info = {};
  std::string address = {};  // host:port of the server itself; empty if it does not listen
  std::string version = {};
  std::string commit = {};  // empty: unknown
  std::optional<std::string> not_ready_reason = {};
  std::map<std::string, AdminSurvey> surveys = {};  // of tables that are not empty
  int64_t resident_bytes = 0;                       // of the process
  std::map<std::string, int64_t> connections =
      {};  // by transport: processes or connections with open streams
  int64_t insert_streams = 0;
  int64_t sample_streams = 0;
  int64_t call_streams = 0;
  int64_t row_calls = 0;  // that wait
  std::vector<AdminClient> clients = {};
  AdminTraffic traffic = {};
  std::map<std::string, int64_t> errors = {};  // refused requests and items by status code
  std::optional<AdminCheckpoints> checkpoints = {};
};

struct AdminItemsQuery {
  std::string table = {};
  bool is_rows = false;  // a row table
  int64_t limit = 20;
  int64_t values = 16;
  bool images = false;
  uint64_t after = 0;  // as returned in "next"; 0: from the start
};

// Threads: all methods may be called concurrently.
class AdminSource {
 public:
  virtual ~AdminSource() = default;
  virtual Result<AdminState> State() = 0;
  // Returns the array "items" and the field "next" of the answer as JSON: {"items":[…],"next":…}, without the braces.
  virtual Result<std::string> ItemsJson(const AdminItemsQuery& query, const ServerInfo& info) = 0;
  virtual const AccessControl& access() const = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_ADMIN_SOURCE_H_
