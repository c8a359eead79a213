// client.h — the native part of reverb.Client; writers and samplers are created with it.
#ifndef REVERB_PYTHON_CLIENT_H_
#define REVERB_PYTHON_CLIENT_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gil.h"
#include "nests.h"
#include "python_api.h"
#include "reverb/client.h"

namespace reverb::python {

// Whether samples of a table may be fetched ahead of the caller.
enum class ReadAhead {
  kFreely,
  kLittle,  // sampling removes items that other clients could get
  kNever,   // the table holds only the latest value, and each sample must be new
};

class ClientObject {
 public:
  ClientObject(std::string address, bool in_process, bool local, std::string name,
               std::optional<int64_t> write_window_bytes, std::optional<double> reconnect_timeout,
               uint64_t max_response_bytes, uint64_t max_decoded_item_bytes, uint64_t max_decoded_reply_bytes,
               std::optional<double> keepalive_timeout, std::string_view lost_updates,
               double lost_server_timeout, bool servers_may_change,
               const std::optional<std::vector<std::string>>& tls, std::string token,
               std::string_view plaintext_token);

  const std::string& address() const { return address_; }
  // How long to try to reconnect to a lost server.
  const Timeout& reconnect_timeout() const { return reconnect_timeout_; }
  // Returns a handle to share.
  Client client() const { return *client_; }

  // Fetches the signatures of the server's tables, for a writer. Fetching them again does not need the GIL, and
  // releases it if it is held.
  std::shared_ptr<SignatureSource> FetchSignatures(Timeout timeout);
  // ValueError when a step does not match one of the tables. Fetches the signatures if they are not known,
  // and again before it rejects a step.
  void CheckInsert(std::span<const Client::TablePriority> tables, std::span<const TensorView> step,
                   Timeout timeout);

  // Of the steps that are inserted one by one.
  ItemNest& nests() { return nests_; }

  // Returns what the server's last answer says. It may be outdated, since any client can change tables.
  ReadAhead MayReadAhead(const std::string& table) const;
  // Requests the answer, and records one.
  void FetchTables(Timeout timeout);
  void RecordTables(const ServerInfo& info);
  // A table was created or removed: requests signatures again when they are needed.
  void ForgetTables() { signatures_.reset(); }

 private:
  const std::string address_;
  const Timeout reconnect_timeout_;
  Owned<Client> client_;

  // With the GIL.
  std::shared_ptr<const TableSignatures> signatures_;
  std::map<std::string, ReadAhead, std::less<>> may_read_ahead_;
  ItemNest nests_;
};

// Implements Client.sample(); `self` is the client.
nb::object MakeSampleIterator(nb::object self, std::string table, int64_t num_samples, Truth emit_timesteps,
                              Truth unpack_as_table_signature, Truth exact, std::optional<double> timeout,
                              Truth names, Truth all_or_nothing, nb::handle lease);

// Return the fields as a dict, for reverb._table_info; nested records are dicts, selectors (kind, exponent).
nb::dict ToDict(const TableInfo& info);
nb::dict ToDict(const ServerInfo& info);
nb::dict ToDict(const RowTableInfo& info);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_CLIENT_H_
