// What a server logs of its clients: long waits, refusals and disconnects, each once.
#include "service/client_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "service/service_testing.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ClientLogTest : public ServiceTest {
 protected:
  ClientLogTest() {
    SetLogRecordSink([this](const LogRecord& record) {
      const LogField* const event = record.Find("event");
      if (event == nullptr) return;
      records_.push_back({.event = std::get<std::string>(event->value),
                          .level = record.level,
                          .message = std::string(record.message),
                          .fields = {record.fields.begin(), record.fields.end()}});
    });
  }
  ~ClientLogTest() override { SetLogSink({}); }

  struct Logged {
    std::string event;
    LogLevel level;
    std::string message;
    std::vector<LogField> fields;

    std::string Text(std::string_view name) const {
      const LogField* const field = LogRecord{.fields = fields}.Find(name);
      return field == nullptr ? "" : std::get<std::string>(field->value);
    }
  };
  std::vector<Logged> Of(std::string_view event) const {
    std::vector<Logged> found;
    for (const Logged& record : records_) {
      if (record.event == event) found.push_back(record);
    }
    return found;
  }
  static Hello Named(uint8_t writer, std::string name) {
    Hello hello = MakeHello(writer);
    hello.client_name = std::move(name);
    return hello;
  }
  static std::shared_ptr<FakeInsertPeer> Writer(std::string address) {
    auto peer = std::make_shared<FakeInsertPeer>();
    peer->from = std::move(address);
    return peer;
  }
  static std::shared_ptr<FakeSamplePeer> Sampler(std::string address) {
    auto peer = std::make_shared<FakeSamplePeer>();
    peer->from = std::move(address);
    return peer;
  }

  std::vector<Logged> records_;
};

TEST_F(ClientLogTest, ALongWaitToSampleIsLoggedOnce) {
  Create({TableOptions::Queue("q", 10)});
  const auto session = service_->OpenSample(Named(1, "learner"), Sampler("192.0.2.1:1")).value();
  session->OnRequest({.request_id = 1, .table = "q", .count = 3});
  clock_.Advance(1s);
  EXPECT_THAT(Of("wait"), IsEmpty());
  clock_.Advance(2s);
  ASSERT_THAT(Of("wait"), SizeIs(1));
  const Logged wait = Of("wait").front();
  EXPECT_EQ(wait.Text("table"), "q");
  EXPECT_EQ(wait.Text("client"), "learner");
  EXPECT_EQ(wait.Text("address"), "192.0.2.1:1");
  EXPECT_EQ(wait.Text("operation"), "sample");
  EXPECT_THAT(wait.message, HasSubstr("table \"q\": learner at 192.0.2.1:1 has waited"));
  clock_.Advance(10min);
  EXPECT_THAT(Of("wait"), SizeIs(1)) << "the same wait";
  session->OnGone();
}

TEST_F(ClientLogTest, ANewWaitOfTheSameClientIsLoggedAgainAfterAMinute) {
  Create({TableOptions::Queue("q", 10)});
  const auto writer = service_->OpenInsert(MakeHello(9), std::make_shared<FakeInsertPeer>()).value();
  const auto session = service_->OpenSample(Named(1, "learner"), Sampler("192.0.2.1:2")).value();
  for (uint64_t i = 1; i <= 3; ++i) {
    session->OnRequest({.request_id = i, .table = "q", .count = 1});
    clock_.Advance(3s);
    writer->OnMessage(MakeMessage(i, i));  // ends the wait
    clock_.Advance(i == 2 ? Duration(2min) : Duration(1s));
  }
  ASSERT_THAT(Of("wait"), SizeIs(2)) << "the second one came too soon";
  EXPECT_THAT(Of("wait").back().message, HasSubstr("(1 similar messages suppressed)"));
  session->OnGone();
  writer->OnGone();
}

TEST_F(ClientLogTest, ABlockedWriterIsLoggedWithItsSession) {
  Create({TableOptions::Queue("q", 1)});
  const auto session = service_->OpenInsert(Named(0xab, "actor"), Writer("192.0.2.2:1")).value();
  session->OnMessage(MakeMessage(1, 3));
  clock_.Advance(3s);
  ASSERT_THAT(Of("wait"), SizeIs(1));
  EXPECT_EQ(Of("wait")[0].Text("session"), "abababababababababababababababab");
  EXPECT_EQ(Of("wait")[0].Text("operation"), "insert");
  session->OnGone();
  ASSERT_THAT(Of("disconnect"), SizeIs(1));
  EXPECT_EQ(Of("disconnect")[0].Text("table"), "q");
  EXPECT_EQ(Of("disconnect")[0].Text("session"), "abababababababababababababababab");
  clock_.Advance(1min);
  EXPECT_THAT(Of("wait"), SizeIs(1)) << "it is no longer connected";
}

TEST_F(ClientLogTest, AWriterThatClosesIsNotLoggedAsADisconnect) {
  Create({{.name = "t"}});
  const auto session = service_->OpenInsert(Named(1, "actor"), Writer("192.0.2.3:1")).value();
  session->OnMessage({.items = {MakeItem(1, "t")}});
  session->OnDone();
  session->OnGone();
  EXPECT_THAT(Of("disconnect"), IsEmpty());
  const auto lost = service_->OpenInsert(Named(2, "actor"), Writer("192.0.2.3:2")).value();
  lost->OnGone();
  ASSERT_THAT(Of("disconnect"), SizeIs(1));
  EXPECT_THAT(Of("disconnect")[0].message,
              HasSubstr("the writer actor at 192.0.2.3:2 disconnected without closing"));
}

TEST_F(ClientLogTest, RefusedItemsRequestsAndStreamsAreLogged) {
  ServiceLimits limits;
  limits.max_streams = 2;
  Create({{.name = "t"}}, limits);
  const auto writer = service_->OpenInsert(Named(1, "actor"), Writer("192.0.2.4:1")).value();
  writer->OnMessage({.items = {MakeItem(1, "nowhere")}});
  ASSERT_THAT(Of("refusal"), SizeIs(1));
  EXPECT_EQ(Of("refusal")[0].Text("table"), "nowhere");
  EXPECT_EQ(Of("refusal")[0].Text("code"), "NOT_FOUND");
  EXPECT_EQ(Of("refusal")[0].level, LogLevel::kWarning);
  const auto sampler = service_->OpenSample(Named(2, "learner"), Sampler("192.0.2.4:2")).value();
  sampler->OnRequest({.request_id = 1, .table = "elsewhere", .count = 1});
  ASSERT_THAT(Of("refusal"), SizeIs(2));
  EXPECT_EQ(Of("refusal")[1].Text("client"), "learner");
  EXPECT_FALSE(service_->OpenSample(Named(3, "third"), Sampler("192.0.2.4:3")).ok());
  ASSERT_THAT(Of("refusal"), SizeIs(3));
  EXPECT_THAT(Of("refusal")[2].message, HasSubstr("refused third at 192.0.2.4:3: the server has 2 streams"));
  writer->OnGone();
  sampler->OnGone();
}

TEST_F(ClientLogTest, NothingIsLoggedOfClientsInTheSameProcess) {
  Create({TableOptions::Queue("q", 1)});
  const auto writer = service_->OpenInsert(Named(1, "actor"), Writer("")).value();
  writer->OnMessage({.items = {MakeItem(1, "nowhere")}});
  const auto sampler = service_->OpenSample(Named(2, "learner"), Sampler("")).value();
  sampler->OnRequest({.request_id = 1, .table = "q", .count = 1});
  clock_.Advance(1min);
  writer->OnGone();
  sampler->OnGone();
  EXPECT_THAT(records_, IsEmpty());
}

TEST_F(ClientLogTest, WaitsCanBeSwitchedOff) {
  SetWaitLogAfter(std::nullopt);
  Create({TableOptions::Queue("q", 10)});
  const auto session = service_->OpenSample(Named(1, "learner"), Sampler("192.0.2.5:1")).value();
  session->OnRequest({.request_id = 1, .table = "q", .count = 3});
  clock_.Advance(10min);
  SetWaitLogAfter(2s);
  EXPECT_THAT(Of("wait"), IsEmpty());
  session->OnGone();
}

}  // namespace
}  // namespace reverb::internal
