// access_testing.h — what the tests of access share: fakes of a transport's peers, and a fixture with tokens.
#ifndef REVERB_ACCESS_ACCESS_TESTING_H_
#define REVERB_ACCESS_ACCESS_TESTING_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "access/access_control.h"
#include "reverb/log.h"
#include "testing/status_matchers.h"
#include "transport/transport_testing.h"

namespace reverb::internal {

struct InsertPeerFake final : InsertPeer {
  void ReadNext() override { reads.Put(true); }
  bool Reply(InsertReply reply) override {
    replies.Put(std::move(reply));
    return true;
  }
  void End(Status status) override { ended.Put(std::move(status)); }
  Mailbox<bool> reads;
  Mailbox<InsertReply> replies;
  Mailbox<Status> ended;
};

struct SamplePeerFake final : SamplePeer {
  void ReadNext() override {}
  Sent Reply(SampleReply /*reply*/) override { return {.bytes = reply_bytes, .ready = true}; }
  void End(Status status) override { ended.Put(std::move(status)); }
  uint64_t reply_bytes = 0;
  Mailbox<Status> ended;
};

// A server with a file of tokens and a fake of its handler, which has no row tables.
class AccessFixture : public testing::Test {
 protected:
  AccessFixture() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("access_" + std::to_string(getpid()) + "_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "tokens").string();
    handler_->on_rows = [](const RowsRequest&) -> Result<RowsReply> {
      return Status::Unimplemented("no row tables");
    };
  }
  ~AccessFixture() override {
    SetLogSink({});
    if (control_) control_->Stop();
    std::filesystem::remove_all(folder_);
  }

  std::string Add(const TokenOptions& options) { return AddToken(path_, options).value(); }
  void Start(bool trust_same_user = false, const UsageLimits& client_limits = {}) {
    auto control = AccessControl::Start(AuthOptions{.tokens_file = path_, .trust_same_user = trust_same_user},
                                        handler_, client_limits);
    ASSERT_OK(control);
    control_ = *std::move(control);
  }
  std::shared_ptr<RequestHandler> Handler(const std::string& token) {
    return control_->Admit({.token = token, .address = "10.0.0.1:5000"}).value();
  }

  std::filesystem::path folder_;
  std::string path_;
  std::shared_ptr<HandlerFake> handler_ = std::make_shared<HandlerFake>();
  std::shared_ptr<AccessControl> control_;
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_ACCESS_TESTING_H_
