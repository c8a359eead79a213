// client.h — what reverb.Client is made of; writers and samplers are made with it.
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
  kLittle,  // sampling takes items away from others
  kNever,   // there is only the latest value, and the next sample shall be new
};

class ClientObject {
 public:
  ClientObject(std::string address, bool in_process, std::string name,
               std::optional<int64_t> write_window_bytes, std::optional<double> reconnect_timeout,
               uint64_t max_response_bytes);

  const std::string& address() const { return address_; }
  // How long a server that was lost is looked for.
  const Timeout& reconnect_timeout() const { return reconnect_timeout_; }
  // A handle to share. RuntimeError in a forked child.
  Client client() const {
    CheckFork();
    return *client_;
  }

  // What the server's tables promise, asked anew.
  std::shared_ptr<const TableSignatures> FetchSignatures(Timeout timeout);
  // ValueError when a step does not fit one of the tables. Asks the server for its tables when they are not
  // known, or before it refuses.
  void CheckInsert(std::span<const Client::TablePriority> tables, std::span<const TensorView> step,
                   Timeout timeout);

  // Of the steps that are inserted one by one.
  ItemNest& nests() { return nests_; }

  // Asks the server when it is not known yet.
  ReadAhead MayReadAhead(const std::string& table, Timeout timeout);
  // Remembers what MayReadAhead() would ask for.
  void NoteTables(const ServerInfo& info);

 private:
  const std::string address_;
  const Timeout reconnect_timeout_;
  Owned<Client> client_;

  // With the GIL.
  std::shared_ptr<const TableSignatures> signatures_;
  std::map<std::string, ReadAhead, std::less<>> may_read_ahead_;
  ItemNest nests_;
};

// Client.sample(); `self` is the client.
nb::object MakeSampleIterator(nb::object self, std::string table, int64_t num_samples, Truth emit_timesteps,
                              Truth unpack_as_table_signature, Truth exact, std::optional<double> timeout);

// Return the fields as a dict, for reverb._table_info; nested records are dicts, selectors (kind, exponent).
nb::dict ToDict(const TableInfo& info);
nb::dict ToDict(const ServerInfo& info);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_CLIENT_H_
