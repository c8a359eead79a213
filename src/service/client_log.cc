#include "service/client_log.h"

#include <chrono>
#include <utility>

#include "base/duration_text.h"
#include "tensor/limiter_text.h"

namespace reverb::internal {

std::string ClientIdentity::ToString() const {
  if (!is_remote()) return name.empty() ? "this process" : name;
  return name.empty() ? address : name + " at " + address;
}

LogFields ClientIdentity::Fields(LogFields first) const {
  if (!name.empty()) first.push_back({"client", name});
  if (!address.empty()) first.push_back({"address", address});
  if (!session.empty()) first.push_back({"session", session});
  return first;
}

std::string SessionText(const Id128& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : id) (text += kDigits[byte >> 4]) += kDigits[byte & 15];
  return text;
}

void LogRefusedClient(const ClientIdentity& client, std::string_view table, const Status& status) {
  if (!client.is_remote()) return;
  if (!IsLogged()) return CountRefusal(status);
  LogFields fields;
  if (!table.empty()) fields.push_back({"table", std::string(table)});
  LogRefusal("client " + client.address + " " + std::string(StatusCodeName(status.code())) + " " +
                 std::string(table),
             "refused " + client.ToString() + ": " + std::string(status.message()), status,
             client.Fields(std::move(fields)));
}

void LogLongWait(const LongWait& wait, const TableInfo& table, LogEvery* log) {
  const WaiterInfo& waiter = wait.waiter;
  const ClientIdentity client{.name = waiter.client_name, .address = waiter.address, .session = wait.session};
  const std::string operation = waiter.is_insert ? "insert" : "sample";
  const Duration waited(waiter.waited_nanos);
  const std::string message = "table \"" + table.name + "\": " + client.ToString() + " has waited " +
                              DurationText(waited) + " to " + operation + " " + std::to_string(waiter.count) +
                              (waiter.count == 1 ? " item" : " items") + ": " +
                              (waiter.is_insert ? DescribeInsertWait(table) : DescribeSampleWait(table));
  LogFields fields = client.Fields({{"event", kEventWait}, {"table", table.name}});
  fields.push_back({"operation", operation});
  fields.push_back({"items", waiter.count});
  fields.push_back({"seconds", std::chrono::duration<double>(waited).count()});
  log->Log(LogLevel::kInfo, operation + " " + waiter.address + " " + table.name, message, std::move(fields));
}

}  // namespace reverb::internal
