#include "snapshot.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace reverb::program {
namespace {

Result<Snapshot> TakeSnapshotOfSet(const Client& client, const WaitOptions& wait) {
  Snapshot snapshot{.servers = client.InfoOfEach(wait)};
  snapshot.when = std::chrono::steady_clock::now();
  std::vector<ServerInfo> infos;
  for (const Client::ServerReport& report : snapshot.servers) {
    if (report.info.ok()) infos.push_back(*report.info);
  }
  if (infos.empty() && !snapshot.servers.empty()) {
    std::string text;
    for (const auto& [address, info] : snapshot.servers) {
      text += (text.empty() ? "" : "; ") + address + ": " + std::string(info.status().message());
    }
    return Status(snapshot.servers.front().info.status().code(), text);
  }
  snapshot.info = SumOf(infos);
  return snapshot;
}

}  // namespace

Result<Snapshot> TakeSnapshot(const Client& client, const Remote& remote,
                              const std::function<Status()>& on_wait) {
  WaitOptions wait = remote.wait();
  wait.on_wait = on_wait;
  if (IsSet(remote.address)) return TakeSnapshotOfSet(client, wait);
  REVERB_ASSIGN_OR_RETURN(ServerInfo info, client.Info(wait));
  const auto when = std::chrono::steady_clock::now();
  REVERB_ASSIGN_OR_RETURN(const std::vector<Transport> transports, client.Transports(wait));
  return Snapshot{.info = std::move(info), .transport = transports.front(), .when = when};
}

}  // namespace reverb::program
