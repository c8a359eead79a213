#include "access/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "access/access_testing.h"
#include "reverb/log.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"
#include "transport/transport_testing.h"

namespace reverb::internal {
namespace {

using ::reverb::test::IsOk;
using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AccessControlTest : public AccessFixture {};

// --- Each right × each call ---

// What a call needs, as the documentation says: a right, or "any" valid token.
struct CallCase {
  std::string needs;
  bool is_for_all_tables = false;  // needs a token for "*"
  bool names_table = true;
  std::function<Status(RequestHandler&, const std::string& table)> call;
};

std::map<Method, CallCase> CallCases() {
  std::map<Method, CallCase> cases;
  cases[Method::kInsert] = {"write", false, true, [](RequestHandler& handler, const std::string& table) {
                              auto peer = std::make_shared<InsertPeerFake>();
                              auto session = handler.OpenInsert(test::ExampleHello(), peer);
                              if (!session.ok()) return session.status();
                              InsertMessage message;
                              message.items.push_back({.number = 1, .key = 7, .table = table});
                              (*session)->OnMessage(std::move(message));
                              const Status ended = peer->ended.Take(Duration(0)).value_or(Status::Ok());
                              (*session)->OnGone();
                              return ended;
                            }};
  cases[Method::kSample] = {"read", false, true, [](RequestHandler& handler, const std::string& table) {
                              auto peer = std::make_shared<SamplePeerFake>();
                              auto session = handler.OpenSample(test::ExampleHello(), peer);
                              if (!session.ok()) return session.status();
                              (*session)->OnRequest({.request_id = 1, .table = table, .count = 1});
                              const Status ended = peer->ended.Take(Duration(0)).value_or(Status::Ok());
                              (*session)->OnGone();
                              return ended;
                            }};
  cases[Method::kMutate] = {"write", false, true, [](RequestHandler& handler, const std::string& table) {
                              return handler.Mutate({.table = table, .updates = {{1, 2.0}}, .deletes = {}});
                            }};
  cases[Method::kReset] = {"admin", false, true, [](RequestHandler& handler, const std::string& table) {
                             return handler.Reset(table);
                           }};
  cases[Method::kInfo] = {"any", false, false, [](RequestHandler& handler, const std::string& /*table*/) {
                            return handler.Info().status();
                          }};
  cases[Method::kInspect] = {"read", false, true, [](RequestHandler& handler, const std::string& table) {
                               return handler.Inspect({.table = table, .cursor = 0, .count = 1}).status();
                             }};
  cases[Method::kSetRateLimiter] = {"admin", false, true,
                                    [](RequestHandler& handler, const std::string& table) {
                                      return handler.SetRateLimiter({.table = table, .options = {}});
                                    }};
  cases[Method::kCreateTable] = {"admin", false, true, [](RequestHandler& handler, const std::string& table) {
                                   CreateTableRequest request;
                                   request.table.name = table;
                                   return handler.CreateTable(request);
                                 }};
  cases[Method::kRemoveTable] = {"admin", false, true, [](RequestHandler& handler, const std::string& table) {
                                   return handler.RemoveTable(table);
                                 }};
  cases[Method::kChangeTable] = {"admin", false, true, [](RequestHandler& handler, const std::string& table) {
                                   return handler.ChangeTable({.table = table, .changes = {}});
                                 }};
  cases[Method::kCheckpoint] = {
      "admin", true, false,
      [](RequestHandler& handler, const std::string& /*table*/) { return handler.Checkpoint().status(); }};
  cases[Method::kSettleLeases] = {"read", false, true, [](RequestHandler& handler, const std::string& table) {
                                    SettleLeasesRequest request;
                                    request.table = table;
                                    return handler.SettleLeases(request).status();
                                  }};
  return cases;
}

// What each verb of kRows needs.
std::map<RowsVerb, std::string> VerbNeeds() {
  return {{RowsVerb::kPut, "write"},         {RowsVerb::kClaim, "read"},
          {RowsVerb::kSettle, "read"},       {RowsVerb::kGet, "read"},
          {RowsVerb::kList, "read"},         {RowsVerb::kDelete, "admin"},
          {RowsVerb::kEnd, "write"},         {RowsVerb::kSetVersion, "write"},
          {RowsVerb::kReserve, "write"},     {RowsVerb::kCancelReservation, "write"},
          {RowsVerb::kInfo, "any"},          {RowsVerb::kCreateTable, "admin"},
          {RowsVerb::kRemoveTable, "admin"}, {RowsVerb::kSetState, "write"},
          {RowsVerb::kGetState, "read"},     {RowsVerb::kCancel, "any"}};
}

Status CallRows(RequestHandler& handler, RowsVerb verb, const std::string& table) {
  RowsRequest request;
  request.call.verb = verb;
  request.call.table = table;
  if (verb == RowsVerb::kCreateTable) {
    request.call.create.emplace();
    request.call.create->name = table;
  }
  std::optional<Status> outcome;
  (void)handler.StartRows(std::move(request), [&outcome](Result<RowsReply> reply) {
    outcome = reply.status();
    return true;
  });
  // What is permitted reaches the fake server, which has no row tables.
  const Status status = outcome.value_or(Status::Internal("no outcome"));
  return status.code() == StatusCode::kUnimplemented ? Status::Ok() : status;
}

TokenOptions WithRights(int bits, std::vector<std::string> tables) {
  return {.name = "token-" + std::to_string(bits),
          .read = (bits & 1) != 0,
          .write = (bits & 2) != 0,
          .admin = (bits & 4) != 0,
          .tables = std::move(tables)};
}

bool Suffices(const TokenOptions& token, const std::string& needs) {
  return needs == "any" || (needs == "read" && token.read) || (needs == "write" && token.write) ||
         (needs == "admin" && token.admin);
}

void ExpectOutcome(const Status& status, const TokenOptions& token, const std::string& needs) {
  if (Suffices(token, needs)) {
    EXPECT_THAT(status, IsOk());
    return;
  }
  EXPECT_THAT(status,
              StatusIs(StatusCode::kPermissionDenied, AllOf(HasSubstr("token \"" + token.name + "\""),
                                                            HasSubstr("lacks the right \"" + needs + "\""))));
}

TEST_F(AccessControlTest, EveryCallNeedsTheRightThatIsDocumented) {
  const std::map<Method, CallCase> cases = CallCases();
  const std::map<RowsVerb, std::string> verbs = VerbNeeds();
  // A new call without an entry must fail here.
  for (uint8_t number = 1; number <= static_cast<uint8_t>(kLastMethod); ++number) {
    const auto method = static_cast<Method>(number);
    ASSERT_FALSE(MethodName(method).empty());
    if (method != Method::kRows) {
      ASSERT_TRUE(cases.contains(method)) << MethodName(method);
    }
  }
  for (uint32_t verb = 1; verb < kNumRowsVerbs; ++verb) {
    ASSERT_TRUE(verbs.contains(static_cast<RowsVerb>(verb))) << "verb " << verb;
  }
  std::map<int, std::string> tokens;
  for (int bits = 1; bits < 8; ++bits) tokens[bits] = Add(WithRights(bits, {"*"}));
  Start();
  for (const auto& [bits, text] : tokens) {
    const TokenOptions token = WithRights(bits, {"*"});
    const std::shared_ptr<RequestHandler> handler = Handler(text);
    for (const auto& [method, each] : cases) {
      SCOPED_TRACE(std::string(MethodName(method)) + " with " + token.name);
      const Status status = each.call(*handler, "replay");
      ExpectOutcome(status, token, each.needs);
    }
    for (const auto& [verb, needs] : verbs) {
      SCOPED_TRACE("verb " + std::to_string(static_cast<int>(verb)) + " with " + token.name);
      const Status status = CallRows(*handler, verb, "rows");
      ExpectOutcome(status, token, needs);
    }
    // Deleting items is an administrator's, with or without updates.
    const Status deleted = handler->Mutate({.table = "replay", .updates = {}, .deletes = {1}});
    ExpectOutcome(deleted, token, "admin");
    const Status both = handler->Mutate({.table = "replay", .updates = {{1, 1.0}}, .deletes = {2}});
    EXPECT_EQ(both.ok(), token.admin && token.write);
  }
}

TEST_F(AccessControlTest, EveryCallIsForTheTablesOfTheToken) {
  const std::string text =
      Add({.name = "team", .read = true, .write = true, .admin = true, .tables = {"team-*"}});
  Start();
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  const auto foreign =
      StatusIs(StatusCode::kPermissionDenied,
               AllOf(HasSubstr("token \"team\""), HasSubstr("\"replay\""), HasSubstr("\"team-*\"")));
  for (const auto& [method, each] : CallCases()) {
    SCOPED_TRACE(MethodName(method));
    if (each.is_for_all_tables) {
      EXPECT_THAT(each.call(*handler, ""), StatusIs(StatusCode::kPermissionDenied, HasSubstr("all tables")));
      continue;
    }
    EXPECT_THAT(each.call(*handler, "team-1"), IsOk());
    if (each.names_table) {
      EXPECT_THAT(each.call(*handler, "replay"), foreign);
    }
  }
  for (const auto& [verb, needs] : VerbNeeds()) {
    SCOPED_TRACE("verb " + std::to_string(static_cast<int>(verb)));
    EXPECT_THAT(CallRows(*handler, verb, "team-rows"), IsOk());
    EXPECT_THAT(CallRows(*handler, verb, "replay"), foreign);
    if (verb != RowsVerb::kInfo) {
      EXPECT_FALSE(CallRows(*handler, verb, "").ok());
    }
  }
}

TEST_F(AccessControlTest, InfoHasTheTablesOfTheTokenOnly) {
  const std::string own = test::Filled<ServerInfo>().tables.front().name;
  const std::string none = Add({.name = "none", .read = true, .tables = {"other"}});
  const std::string one = Add({.name = "one", .write = true, .tables = {own}});
  Start();
  EXPECT_TRUE(Handler(none)->Info()->tables.empty());
  EXPECT_TRUE(Handler(none)->Info()->waiters.empty());
  EXPECT_EQ(Handler(one)->Info()->tables.front().name, own);
}

// --- Who may enter ---

TEST_F(AccessControlTest, RefusesCallersWithoutAKnownToken) {
  const std::string text = Add({.name = "a", .read = true});
  Start();
  EXPECT_THAT(control_->Admit({.address = "10.0.0.1:5000"}).status(),
              StatusIs(StatusCode::kUnauthenticated, HasSubstr("REVERB_TOKEN")));
  for (const std::string& wrong :
       {text + "x", text.substr(1), std::string("rvb_"), std::string(100'000, 'a')}) {
    EXPECT_THAT(
        control_->Admit({.token = wrong}).status(),
        StatusIs(StatusCode::kUnauthenticated, AllOf(HasSubstr("does not know"), Not(HasSubstr(wrong)))));
  }
  EXPECT_THAT(control_->Admit({.token = text}).status(), IsOk());
}

TEST_F(AccessControlTest, TrustsTheSameUserOnlyIfConfigured) {
  const std::string text = Add({.name = "a", .read = true});
  Start(/*trust_same_user=*/false);
  EXPECT_FALSE(control_->Admit({.is_same_user = true}).ok());
  EXPECT_THAT((*control_->Admit({.is_same_user = true, .is_this_process = true}))->Reset("t"), IsOk());
  control_->Stop();
  Start(/*trust_same_user=*/true);
  EXPECT_THAT((*control_->Admit({.is_same_user = true}))->Reset("t"), IsOk());
  EXPECT_FALSE(control_->Admit({.is_same_user = false}).ok());
  // One that has a token is held to it.
  EXPECT_THAT((*control_->Admit({.token = text, .is_same_user = true}))->Reset("t"),
              StatusIs(StatusCode::kPermissionDenied));
}

TEST_F(AccessControlTest, WithoutTokensEverybodyMayDoEverything) {
  control_ = *AccessControl::Start(std::nullopt, handler_);
  const std::shared_ptr<RequestHandler> handler = *control_->Admit({.address = "10.0.0.1:5000"});
  for (const auto& [method, each] : CallCases()) EXPECT_THAT(each.call(*handler, "replay"), IsOk());
  EXPECT_EQ(*control_->Authenticate("whatever"), nullptr);
  EXPECT_THAT(control_->Reload(), IsOk());
}

TEST_F(AccessControlTest, RefusesAFileThatOthersCanWrite) {
  Add({.name = "a", .read = true});
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(AccessControl::Start(AuthOptions{.tokens_file = path_}, handler_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chmod 600")));
}

// --- Changes of the file ---

TEST_F(AccessControlTest, ReadsTheFileAgainWhenItChanges) {
  Add({.name = "a", .read = true});
  Start();
  const std::string added = Add({.name = "b", .read = true});
  EXPECT_TRUE(test::WaitUntil([&] { return control_->Admit({.token = added}).ok(); }));
  ASSERT_OK(RemoveToken(path_, "b"));
  EXPECT_TRUE(test::WaitUntil([&] { return !control_->Admit({.token = added}).ok(); }));
}

TEST_F(AccessControlTest, ReloadReadsTheFileNow) {
  Add({.name = "a", .read = true});
  Start();
  const std::string added = Add({.name = "b", .read = true});
  ASSERT_OK(control_->Reload());
  EXPECT_THAT(control_->Admit({.token = added}).status(), IsOk());
}

TEST_F(AccessControlTest, DamageLeavesTheFormerTokensInUse) {
  const std::string text = Add({.name = "a", .read = true});
  Mailbox<std::string> errors;
  SetLogSink([&errors](LogLevel level, std::string_view message) {
    if (level == LogLevel::kError) errors.Put(std::string(message));
  });
  Start();
  std::ofstream(path_, std::ios::app) << "token name=broken\n";
  TAKE_OR_FAIL(error, errors);
  EXPECT_THAT(error, AllOf(HasSubstr("line 3"), HasSubstr("stay in use")));
  EXPECT_THAT(control_->Reload(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(control_->Admit({.token = text}).status(), IsOk());
  std::filesystem::remove(path_);
  TAKE_OR_FAIL(removed, errors);
  EXPECT_THAT(removed, HasSubstr("does not exist"));
  EXPECT_THAT(control_->Admit({.token = text}).status(), IsOk());
}

TEST_F(AccessControlTest, AHandlerThatIsKeptSeesChanges) {
  const std::string text = Add({.name = "a", .read = true});
  Start();
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  EXPECT_THAT(handler->Info().status(), IsOk());
  ASSERT_OK(RemoveToken(path_, "a"));
  ASSERT_OK(control_->Reload());
  EXPECT_THAT(handler->Info().status(), StatusIs(StatusCode::kUnauthenticated, HasSubstr("was removed")));
}

// --- Streams that live longer than their token ---

TEST_F(AccessControlTest, StreamsOfARemovedTokenEnd) {
  const std::string text = Add({.name = "a", .read = true, .write = true});
  const std::string other = Add({.name = "b", .read = true, .write = true});
  Start();
  auto insert_peer = std::make_shared<InsertPeerFake>();
  auto sample_peer = std::make_shared<SamplePeerFake>();
  auto other_peer = std::make_shared<InsertPeerFake>();
  auto insert = Handler(text)->OpenInsert(test::ExampleHello(), insert_peer);
  auto sample = Handler(text)->OpenSample(test::ExampleHello(), sample_peer);
  auto unrelated = Handler(other)->OpenInsert(test::ExampleHello(), other_peer);
  ASSERT_OK(insert);
  ASSERT_OK(sample);
  ASSERT_OK(unrelated);
  EXPECT_EQ(control_->num_streams(), 3u);
  ASSERT_OK(RemoveToken(path_, "a"));  // nobody calls Reload()
  TAKE_OR_FAIL(insert_ended, insert_peer->ended);
  TAKE_OR_FAIL(sample_ended, sample_peer->ended);
  EXPECT_THAT(insert_ended, StatusIs(StatusCode::kUnauthenticated, HasSubstr("token \"a\" was removed")));
  EXPECT_THAT(sample_ended, StatusIs(StatusCode::kUnauthenticated, HasSubstr("token \"a\" was removed")));
  EXPECT_EQ(other_peer->ended.total(), 0);
  (*insert)->OnGone();
  (*sample)->OnGone();
  (*unrelated)->OnGone();
  EXPECT_EQ(control_->num_streams(), 0u);
}

TEST_F(AccessControlTest, StreamsOfAnExpiredTokenEnd) {
  const std::string text = Add(
      {.name = "brief", .read = true, .expires = std::chrono::system_clock::now() + std::chrono::seconds(3)});
  Start();
  auto peer = std::make_shared<SamplePeerFake>();
  auto session = Handler(text)->OpenSample(test::ExampleHello(), peer);
  ASSERT_OK(session);
  TAKE_OR_FAIL(ended, peer->ended);
  EXPECT_THAT(ended, StatusIs(StatusCode::kUnauthenticated, HasSubstr("token \"brief\" expired at ")));
  EXPECT_THAT(control_->Admit({.token = text}).status(),
              StatusIs(StatusCode::kUnauthenticated, HasSubstr("expired")));
  (*session)->OnGone();
}

TEST_F(AccessControlTest, StreamsOfAChangedTokenReconnect) {
  const std::string text = Add({.name = "a", .read = true});
  Start();
  auto peer = std::make_shared<SamplePeerFake>();
  auto session = Handler(text)->OpenSample(test::ExampleHello(), peer);
  ASSERT_OK(session);
  std::vector<TokenEntry> tokens = ReadTokens(path_).value();
  ASSERT_OK(control_->Reload());  // unchanged: nothing happens
  EXPECT_EQ(peer->ended.total(), 0);
  tokens.front().options.tables = {"other"};
  std::ofstream(path_) << FormatTokens(tokens);
  ASSERT_OK(control_->Reload());
  TAKE_OR_FAIL(ended, peer->ended);
  EXPECT_THAT(ended, StatusIs(StatusCode::kUnavailable, HasSubstr("has changed")));
  (*session)->OnGone();
}

// --- The log ---

TEST_F(AccessControlTest, LogsWhatAdministratorsDoAndNeverTokens) {
  const std::string admin = Add({.name = "root", .admin = true});
  const std::string reader = Add({.name = "reader", .read = true});
  Start();
  Mutex mu;
  std::string log;
  std::string fields;
  SetLogRecordSink([&](const LogRecord& record) {
    MutexLock lock(&mu);
    log += std::string(record.message) + "\n";
    for (const LogField& field : record.fields) {
      fields += std::string(field.name) + "=" + std::get<std::string>(field.value) + ";";
    }
    fields += "\n";
  });
  ASSERT_OK(Handler(admin)->Reset("replay"));
  ASSERT_OK(Handler(admin)->Checkpoint());
  EXPECT_FALSE(Handler(reader)->RemoveTable("x\" token=\"root\nfake").ok());
  EXPECT_FALSE(CallRows(*Handler(reader), RowsVerb::kDelete, "rows").ok());
  ASSERT_OK(Handler(reader)->Info());
  SetLogSink({});
  MutexLock lock(&mu);
  EXPECT_THAT(log,
              HasSubstr("audit: Reset table=\"replay\" token=\"root\" client=\"10.0.0.1:5000\" result=OK\n"));
  EXPECT_THAT(log, HasSubstr("audit: Checkpoint token=\"root\" client=\"10.0.0.1:5000\" result=OK\n"));
  EXPECT_THAT(log,
              HasSubstr("audit: RemoveTable table=\"x\\x22 token=\\x22root\\x0afake\" token=\"reader\""));
  EXPECT_THAT(log, HasSubstr("result=PERMISSION_DENIED"));
  EXPECT_THAT(log, HasSubstr("audit: Rows.Delete table=\"rows\""));
  EXPECT_THAT(fields,
              HasSubstr("event=audit;call=Reset;table=replay;token=root;client=10.0.0.1:5000;result=OK;\n"));
  EXPECT_THAT(fields, HasSubstr("event=audit;call=Checkpoint;token=root;client=10.0.0.1:5000;result=OK;\n"));
  EXPECT_THAT(fields, HasSubstr("call=Rows.Delete;table=rows;token=reader;"));
  EXPECT_THAT(log, Not(HasSubstr("Info")));
  EXPECT_THAT(log, Not(HasSubstr(admin)));
  EXPECT_THAT(log, Not(HasSubstr(reader)));
}

}  // namespace
}  // namespace reverb::internal
