// status_matchers.h — GoogleTest matchers for Status and Result. Header-only.
//
//   ASSERT_OK(table.Close());
//   EXPECT_THAT(result, IsOkAndHolds(ElementsAre(1, 2)));
//   EXPECT_THAT(status, StatusIs(StatusCode::kNotFound));
//   EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
//   EXPECT_THAT(status, StatusIs(StatusCode::kNotFound, HasSubstr("table \"per\"")));
#ifndef REVERB_TESTS_TESTING_STATUS_MATCHERS_H_
#define REVERB_TESTS_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "reverb/status.h"

namespace reverb {

// Printers for GoogleTest, found by argument-dependent lookup.
inline void PrintTo(const Status& status, std::ostream* os) { *os << status.ToString(); }
inline void PrintTo(StatusCode code, std::ostream* os) { *os << StatusCodeName(code); }
inline void PrintTo(Detail detail, std::ostream* os) { *os << "detail " << static_cast<int>(detail); }
template <typename T>
void PrintTo(const Result<T>& result, std::ostream* os) {
  if (result.ok()) {
    *os << "OK, holds " << ::testing::PrintToString(*result);
  } else {
    *os << result.status().ToString();
  }
}

namespace test {

inline const Status& GetStatus(const Status& status) { return status; }
template <typename T>
const Status& GetStatus(const Result<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const Status& status = GetStatus(arg);
  if (!status.ok()) *result_listener << "which is " << status.ToString();
  return status.ok();
}

// Matches a Status or a Result<T> by code, and optionally by detail and by message.
class StatusIsMatcher {
 public:
  using is_gtest_matcher = void;

  StatusIsMatcher(::testing::Matcher<StatusCode> code, ::testing::Matcher<Detail> detail,
                  ::testing::Matcher<std::string> message)
      : code_(std::move(code)), detail_(std::move(detail)), message_(std::move(message)) {}

  template <typename T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    const Status& status = GetStatus(value);
    *listener << "which is " << status.ToString();
    return code_.Matches(status.code()) && detail_.Matches(status.detail()) &&
           message_.Matches(std::string(status.message()));
  }
  void DescribeTo(std::ostream* os) const {
    *os << "has a code that ";
    code_.DescribeTo(os);
    *os << ", a detail that ";
    detail_.DescribeTo(os);
    *os << " and a message that ";
    message_.DescribeTo(os);
  }
  void DescribeNegationTo(std::ostream* os) const {
    *os << "not: ";
    DescribeTo(os);
  }

 private:
  ::testing::Matcher<StatusCode> code_;
  ::testing::Matcher<Detail> detail_;
  ::testing::Matcher<std::string> message_;
};

inline StatusIsMatcher StatusIs(StatusCode code) { return {code, ::testing::_, ::testing::_}; }
inline StatusIsMatcher StatusIs(StatusCode code, Detail detail) { return {code, detail, ::testing::_}; }
// `message`: a matcher such as HasSubstr(), or the complete text.
template <typename Message>
requires(!std::is_same_v<std::decay_t<Message>, Detail>) StatusIsMatcher
    StatusIs(StatusCode code, Message&& message) {
  return {code, ::testing::_, ::testing::SafeMatcherCast<std::string>(std::forward<Message>(message))};
}
template <typename Message>
StatusIsMatcher StatusIs(StatusCode code, Detail detail, Message&& message) {
  return {code, detail, ::testing::SafeMatcherCast<std::string>(std::forward<Message>(message))};
}

// Matches a Result<T> whose value matches `inner` (a matcher or a value).
template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename R>
  operator ::testing::Matcher<R>() const {  // NOLINT: implicit by design
    return ::testing::Matcher<R>(new Impl<R>(inner_));
  }

 private:
  template <typename R>
  class Impl : public ::testing::MatcherInterface<R> {
   public:
    using Value = std::decay_t<decltype(*std::declval<const std::decay_t<R>&>())>;

    explicit Impl(const Inner& inner) : inner_(::testing::SafeMatcherCast<const Value&>(inner)) {}

    bool MatchAndExplain(R result, ::testing::MatchResultListener* listener) const override {
      if (!result.ok()) {
        *listener << "which is " << result.status().ToString();
        return false;
      }
      return inner_.MatchAndExplain(*std::as_const(result), listener);
    }
    void DescribeTo(std::ostream* os) const override {
      *os << "is OK and has a value that ";
      inner_.DescribeTo(os);
    }
    void DescribeNegationTo(std::ostream* os) const override {
      *os << "is not OK or has a value that ";
      inner_.DescribeNegationTo(os);
    }

   private:
    const ::testing::Matcher<const Value&> inner_;
  };

  Inner inner_;
};

template <typename Inner>
IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(Inner&& inner) {
  return IsOkAndHoldsMatcher<std::decay_t<Inner>>(std::forward<Inner>(inner));
}

}  // namespace test
}  // namespace reverb

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::reverb::test::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::reverb::test::IsOk())

#endif  // REVERB_TESTS_TESTING_STATUS_MATCHERS_H_
