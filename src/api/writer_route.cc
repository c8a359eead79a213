#include "api/writer_route.h"

#include <utility>

#include "transport/closed_stream.h"

namespace reverb::internal {

class WriterRoute::Events final : public InsertEvents {
 public:
  Events(std::shared_ptr<WriterRoute> route, std::shared_ptr<ServerLink> link,
         std::shared_ptr<InsertEvents> events)
      : route_(std::move(route)), link_(std::move(link)), events_(std::move(events)) {}
  void OnReply(InsertReply reply) override {
    if (reply.welcome) route_->OnWelcome(link_.get(), *reply.welcome);
    events_->OnReply(std::move(reply));
  }
  void OnSent() override { events_->OnSent(); }
  void OnClosed(Status status) override {
    route_->OnClosed();
    events_->OnClosed(std::move(status));
  }

 private:
  const std::shared_ptr<WriterRoute> route_;
  const std::shared_ptr<ServerLink> link_;
  const std::shared_ptr<InsertEvents> events_;
};

std::string WriterRoute::address() const {
  MutexLock lock(&mu_);
  return link_ ? link_->address() : std::string("no server");
}

bool WriterRoute::is_connected() const {
  MutexLock lock(&mu_);
  return link_ != nullptr && !failing_since_;
}

std::shared_ptr<ServerLink> WriterRoute::Choose(const Id128& session) {
  std::shared_ptr<ServerLink> present;
  bool is_failing = false, has_timed_out = false;
  {
    MutexLock lock(&mu_);
    present = link_;
    is_failing = failing_since_.has_value();
    has_timed_out = is_failing && clock_->Now() - *failing_since_ >= set_->lost_timeout();
  }
  if (present && has_timed_out) set_->MarkLost(present);
  // One that is lost for other calls, which wait for less time, may still be this writer's.
  const bool keeps = present && !(has_timed_out || (is_failing && !set_->Contains(*present)));
  std::shared_ptr<ServerLink> chosen = keeps ? present : set_->Home(session);
  if (!chosen) chosen = present;
  MutexLock lock(&mu_);
  // Counts until the server answers. If all are lost, the next attempt may choose any that has returned.
  const bool are_all_lost = has_timed_out && chosen && chosen->is_lost();
  if (chosen != link_ && !are_all_lost) failing_since_ = clock_->Now();
  link_ = chosen;
  return chosen;
}

std::shared_ptr<InsertStream> WriterRoute::OpenInsert(const Hello& hello,
                                                      std::shared_ptr<InsertEvents> events) {
  const std::shared_ptr<ServerLink> link = Choose(hello.session_id);
  if (!link) {
    events->OnClosed(Status::Unavailable("no server of the set is known yet"));
    return std::make_shared<ClosedStream>();
  }
  return link->ConnectNow()->OpenInsert(
      hello, std::make_shared<Events>(shared_from_this(), link, std::move(events)));
}

std::shared_ptr<SampleStream> WriterRoute::OpenSample(const Hello&, std::shared_ptr<SampleEvents> events) {
  events->OnClosed(Unused());
  return std::make_shared<ClosedStream>();
}

void WriterRoute::OnWelcome(ServerLink* link, const Welcome& welcome) {
  link->SetShard(welcome.shard);
  link->SetLost(false);
  MutexLock lock(&mu_);
  failing_since_.reset();
}

void WriterRoute::OnClosed() {
  MutexLock lock(&mu_);
  if (!failing_since_) failing_since_ = clock_->Now();
}

}  // namespace reverb::internal
