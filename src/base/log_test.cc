#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reverb::internal {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { SetLogSink({}); }

  void Collect() {
    SetLogSink([this](LogLevel level, std::string_view message) { lines_.emplace_back(level, message); });
  }
  std::vector<std::string> Messages() const {
    std::vector<std::string> messages;
    for (const auto& [level, message] : lines_) messages.push_back(message);
    return messages;
  }

  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(LogTest, LinesReachTheSink) {
  Collect();
  EXPECT_TRUE(IsLogged());
  Log(LogLevel::kWarning, "careful");
  Log(LogLevel::kDebug, "");
  EXPECT_THAT(lines_, ElementsAre(Pair(LogLevel::kWarning, "careful"), Pair(LogLevel::kDebug, "")));
}

TEST_F(LogTest, WithoutASinkLinesAreDropped) {
  EXPECT_FALSE(IsLogged());
  Log(LogLevel::kError, "before");
  Collect();
  SetLogSink({});
  EXPECT_FALSE(IsLogged());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Log(LogLevel::kError, "after");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LogTest, ASinkMayLogAndReplaceItself) {
  int depth = 0;
  SetLogSink([&](LogLevel level, std::string_view message) {
    lines_.emplace_back(level, message);
    if (++depth == 1) Log(LogLevel::kInfo, "inner");
    if (depth == 2) SetLogSink({});
    // Still alive, although it was replaced.
    lines_.emplace_back(level, "done");
  });
  Log(LogLevel::kInfo, "outer");
  Log(LogLevel::kInfo, "dropped");
  EXPECT_THAT(Messages(), ElementsAre("outer", "inner", "done", "done"));
}

TEST_F(LogTest, ExceptionsOfASinkAreIgnored) {
  SetLogSink([](LogLevel, std::string_view) { throw std::runtime_error("disk full"); });
  EXPECT_NO_THROW(Log(LogLevel::kInfo, "x"));
}

TEST_F(LogTest, AReplacedSinkIsDestroyed) {
  auto resource = std::make_shared<int>(1);
  SetLogSink([resource](LogLevel, std::string_view) {});
  EXPECT_EQ(resource.use_count(), 2);
  SetLogSink({});
  EXPECT_EQ(resource.use_count(), 1);
}

TEST_F(LogTest, ManyThreadsMayLogWhileTheSinkChanges) {
  std::atomic<int> lines{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) Log(LogLevel::kInfo, "line");
    });
  }
  for (int i = 0; i < 300; ++i) {
    SetLogSink([&](LogLevel, std::string_view) { ++lines; });
    SetLogSink({});
  }
  SetLogSink([&](LogLevel, std::string_view) { ++lines; });
  const int before = lines;
  while (lines == before) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(lines, before);
}

TEST_F(LogTest, LogEveryLogsOneLinePerIntervalAndCountsTheRest) {
  Collect();
  ManualClock clock;
  LogEvery log(&clock, seconds(10));
  EXPECT_TRUE(log.Log(LogLevel::kInfo, "wait", "waiting"));
  EXPECT_FALSE(log.Log(LogLevel::kInfo, "wait", "waiting"));
  clock.Advance(seconds(9));
  EXPECT_FALSE(log.Log(LogLevel::kInfo, "wait", "waiting"));
  clock.Advance(seconds(1));
  EXPECT_TRUE(log.Log(LogLevel::kError, "wait", "still waiting"));
  clock.Advance(seconds(10));
  EXPECT_TRUE(log.Log(LogLevel::kInfo, "wait", "waiting"));
  EXPECT_THAT(lines_, ElementsAre(Pair(LogLevel::kInfo, "waiting"),
                                  Pair(LogLevel::kError, "still waiting (2 similar messages suppressed)"),
                                  Pair(LogLevel::kInfo, "waiting")));
}

TEST_F(LogTest, FieldsReachASinkOfRecords) {
  std::vector<std::string> seen;
  SetLogRecordSink([&](const LogRecord& record) {
    seen.push_back(std::string(LogLevelName(record.level)) + " " + std::string(record.message));
    for (const LogField& field : record.fields) seen.emplace_back(field.name);
    ASSERT_NE(record.Find("table"), nullptr);
    EXPECT_EQ(std::get<std::string>(record.Find("table")->value), "replay");
    EXPECT_EQ(std::get<int64_t>(record.Find("items")->value), 3);
    EXPECT_EQ(record.Find("client"), nullptr);
  });
  Log(LogLevel::kError, "full", {{"table", "replay"}, {"items", int64_t{3}}});
  EXPECT_THAT(seen, ElementsAre("error full", "table", "items"));
}

TEST_F(LogTest, LogEveryCountsTheSuppressedInAField) {
  ManualClock clock;
  LogEvery log(&clock, seconds(10));
  std::vector<int64_t> counts;
  SetLogRecordSink([&](const LogRecord& record) {
    const LogField* const count = record.Find("suppressed");
    counts.push_back(count == nullptr ? 0 : std::get<int64_t>(count->value));
    EXPECT_EQ(std::get<std::string>(record.Find("table")->value), "t");
  });
  for (int i = 0; i < 5; ++i) {
    log.Log(LogLevel::kInfo, "key", "text", {{"table", "t"}});
    clock.Advance(seconds(4));
  }
  EXPECT_THAT(counts, ElementsAre(0, 2));
}

TEST_F(LogTest, AnEmptySinkOfEitherKindDropsRecords) {
  Collect();
  SetLogRecordSink({});
  EXPECT_FALSE(IsLogged());
  Log(LogLevel::kError, "dropped");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LogTest, LogEveryKeepsKeysApart) {
  Collect();
  ManualClock clock;
  LogEvery log(&clock, seconds(10));
  EXPECT_TRUE(log.Log(LogLevel::kInfo, "a", "1"));
  EXPECT_TRUE(log.Log(LogLevel::kInfo, "b", "2"));
  EXPECT_FALSE(log.Log(LogLevel::kInfo, "a", "3"));
  EXPECT_THAT(Messages(), ElementsAre("1", "2"));
}

TEST_F(LogTest, LogEveryForgetsQuietKeysWhenThereAreTooMany) {
  ManualClock clock;
  LogEvery log(&clock, seconds(10));
  for (size_t i = 0; i < LogEvery::kMaxKeys; ++i) {
    ASSERT_TRUE(log.Log(LogLevel::kInfo, "key " + std::to_string(i), "x"));
  }
  EXPECT_FALSE(log.Log(LogLevel::kInfo, "one more", "x"));
  clock.Advance(seconds(10));
  EXPECT_TRUE(log.Log(LogLevel::kInfo, "one more", "x"));
}

TEST_F(LogTest, ASinkMayUseTheLogEveryThatCalledIt) {
  ManualClock clock;
  LogEvery log(&clock, seconds(10));
  int calls = 0;
  SetLogSink([&](LogLevel, std::string_view) {
    ++calls;
    log.Log(LogLevel::kInfo, "key", "inner");
  });
  log.Log(LogLevel::kInfo, "key", "outer");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace reverb::internal
