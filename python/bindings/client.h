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
#include "python_api.h"
#include "reverb/client.h"

namespace reverb::python {

class ClientObject {
 public:
  ClientObject(std::string address, bool in_process);

  const std::string& address() const { return address_; }
  // Whether a server of this process is used without a socket.
  bool in_process() const { return in_process_; }
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

  // Whether samples of this table may be fetched ahead of the caller: not where that takes items away from
  // others. Asks the server when it is not known yet.
  bool MayReadAhead(const std::string& table, Timeout timeout);

 private:
  const std::string address_;
  const bool in_process_;
  Owned<Client> client_;

  // With the GIL.
  std::shared_ptr<const TableSignatures> signatures_;
  std::map<std::string, bool, std::less<>> may_read_ahead_;
};

// The fields of a TableInfo as a dict, for reverb._table_info.
nb::dict ToDict(const TableInfo& info);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_CLIENT_H_
