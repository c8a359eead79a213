// writer_route.h — the connection of a writer to one server of a set, and to another one when that is lost.
//
// A pipeline reconnects through the same Connection; this one chooses the server anew with each stream. It stays
// with its server until that could not be reached for ServerSet::lost_timeout(). Unconfirmed items are then sent to
// another server, in order.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_API_WRITER_ROUTE_H_
#define REVERB_API_WRITER_ROUTE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/server_set.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace reverb::internal {

class WriterRoute final : public Connection, public std::enable_shared_from_this<WriterRoute> {
 public:
  explicit WriterRoute(std::shared_ptr<ServerSet> set, Clock* clock = RealClock())
      : set_(std::move(set)), clock_(clock) {}

  std::string address() const override EXCLUDES(mu_);
  // False even if the present server is: the next one may not be.
  bool in_process() const override { return false; }
  bool send_may_block() const override { return true; }
  bool is_connected() const override EXCLUDES(mu_);

  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello, std::shared_ptr<InsertEvents> events) override
      EXCLUDES(mu_);

  // A writer needs none of these.
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello, std::shared_ptr<SampleEvents> events) override;
  Result<ServerInfo> Info(const WaitOptions&) override { return Unused(); }
  Status Mutate(const MutateRequest&, const WaitOptions&) override { return Unused(); }
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest&, const WaitOptions&) override {
    return Unused();
  }
  Status Reset(std::string_view, const WaitOptions&) override { return Unused(); }
  Status SetRateLimiter(const SetRateLimiterRequest&, const WaitOptions&) override { return Unused(); }
  Status CreateTable(const CreateTableRequest&, const WaitOptions&) override { return Unused(); }
  Status RemoveTable(std::string_view, const WaitOptions&) override { return Unused(); }
  Status ChangeTable(const ChangeTableRequest&, const WaitOptions&) override { return Unused(); }
  Result<InspectReply> Inspect(const InspectRequest&, const WaitOptions&) override { return Unused(); }
  Result<std::string> Checkpoint(const WaitOptions&) override { return Unused(); }

 private:
  class Events;
  static Status Unused() { return Status::Unimplemented("the connection of a writer has streams only"); }
  // Returns the server for the next stream; null if there is none.
  std::shared_ptr<ServerLink> Choose(const Id128& session) EXCLUDES(mu_);
  void OnWelcome(ServerLink* link, const Welcome& welcome) EXCLUDES(mu_);
  void OnClosed() EXCLUDES(mu_);

  const std::shared_ptr<ServerSet> set_;
  Clock* const clock_;

  mutable Mutex mu_;
  std::shared_ptr<ServerLink> link_ GUARDED_BY(mu_);
  std::optional<TimePoint> failing_since_ GUARDED_BY(mu_);  // absent while the server answers
};

}  // namespace reverb::internal

#endif  // REVERB_API_WRITER_ROUTE_H_
