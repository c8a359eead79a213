// cut_connection.h — a connection that loses a confirmation, for tests of what writers do then.
#ifndef REVERB_TESTS_TESTING_CUT_CONNECTION_H_
#define REVERB_TESTS_TESTING_CUT_CONNECTION_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "transport/transport.h"

namespace reverb::test {

// Forwards everything to another connection. After CutNextConfirmation(), the insert stream that receives the next
// confirmation is broken instead, as if the network had failed after the server had inserted the items.
class CutConnection final : public internal::Connection {
 public:
  explicit CutConnection(std::shared_ptr<internal::Connection> to) : to_(std::move(to)) {}

  void CutNextConfirmation() { cut_->armed = true; }
  int num_cuts() const { return cut_->count; }
  int num_insert_streams() const { return num_insert_streams_; }

  std::string address() const override { return to_->address(); }
  bool in_process() const override { return to_->in_process(); }
  bool send_may_block() const override { return to_->send_may_block(); }
  bool is_connected() const override { return to_->is_connected(); }
  internal::PayloadSource* payload_source() override { return to_->payload_source(); }
  std::shared_ptr<internal::InsertStream> OpenInsert(
      const internal::Hello& hello, std::shared_ptr<internal::InsertEvents> events) override {
    ++num_insert_streams_;
    auto watch = std::make_shared<Watch>(cut_, std::move(events));
    std::shared_ptr<internal::InsertStream> stream = to_->OpenInsert(hello, watch);
    watch->SetStream(stream);
    return stream;
  }
  std::shared_ptr<internal::SampleStream> OpenSample(
      const internal::Hello& hello, std::shared_ptr<internal::SampleEvents> events) override {
    return to_->OpenSample(hello, std::move(events));
  }
  Result<ServerInfo> Info(const WaitOptions& wait) override { return to_->Info(wait); }
  Status Mutate(const internal::MutateRequest& request, const WaitOptions& wait) override {
    return to_->Mutate(request, wait);
  }
  Result<LeaseOutcome> SettleLeases(const internal::SettleLeasesRequest& request,
                                    const WaitOptions& wait) override {
    return to_->SettleLeases(request, wait);
  }
  Status Reset(std::string_view table, const WaitOptions& wait) override { return to_->Reset(table, wait); }
  Status SetRateLimiter(const internal::SetRateLimiterRequest& request, const WaitOptions& wait) override {
    return to_->SetRateLimiter(request, wait);
  }
  Status CreateTable(const internal::CreateTableRequest& request, const WaitOptions& wait) override {
    return to_->CreateTable(request, wait);
  }
  Status RemoveTable(std::string_view table, const WaitOptions& wait) override {
    return to_->RemoveTable(table, wait);
  }
  Status ChangeTable(const internal::ChangeTableRequest& request, const WaitOptions& wait) override {
    return to_->ChangeTable(request, wait);
  }
  Result<internal::InspectReply> Inspect(const internal::InspectRequest& request,
                                         const WaitOptions& wait) override {
    return to_->Inspect(request, wait);
  }
  Result<std::string> Checkpoint(const WaitOptions& wait) override { return to_->Checkpoint(wait); }

 private:
  struct Cut {
    std::atomic<bool> armed{false};
    std::atomic<int> count{0};
  };
  class Watch final : public internal::InsertEvents {
   public:
    Watch(std::shared_ptr<Cut> cut, std::shared_ptr<internal::InsertEvents> events)
        : cut_(std::move(cut)), events_(std::move(events)) {}
    void SetStream(std::weak_ptr<internal::InsertStream> stream) EXCLUDES(mu_) {
      internal::MutexLock lock(&mu_);
      stream_ = std::move(stream);
    }
    void OnReply(internal::InsertReply reply) override {
      if (is_cut_) return;
      if (!reply.welcome && reply.confirmed_through > 0 && cut_->armed.exchange(false)) {
        is_cut_ = true;
        ++cut_->count;
        if (const auto stream = this->stream()) stream->Cancel();
        return;
      }
      events_->OnReply(std::move(reply));
    }
    void OnSent() override { events_->OnSent(); }
    void OnClosed(Status status) override {
      events_->OnClosed(is_cut_ ? Status::Unavailable("the connection was cut") : std::move(status));
    }

   private:
    std::shared_ptr<internal::InsertStream> stream() EXCLUDES(mu_) {
      internal::MutexLock lock(&mu_);
      return stream_.lock();
    }
    const std::shared_ptr<Cut> cut_;
    const std::shared_ptr<internal::InsertEvents> events_;
    std::atomic<bool> is_cut_{false};
    internal::Mutex mu_;
    std::weak_ptr<internal::InsertStream> stream_ GUARDED_BY(mu_);
  };

  const std::shared_ptr<internal::Connection> to_;
  const std::shared_ptr<Cut> cut_ = std::make_shared<Cut>();
  std::atomic<int> num_insert_streams_{0};
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_CUT_CONNECTION_H_
