#include "admin/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

RequestTarget Parsed(std::string_view text) { return ParseTarget(text).value(); }

TEST(QueryTest, SplitsPathsBeforeTheyAreDecoded) {
  EXPECT_THAT(Parsed("/").path, IsEmpty());
  EXPECT_THAT(Parsed("/a/b").path, ElementsAre("a", "b"));
  EXPECT_THAT(Parsed("/a%2Fb/%3cscript%3E?x#y").path, ElementsAre("a/b", "<script>"));
  EXPECT_THAT(Parsed("/a/").path, ElementsAre("a"));
  EXPECT_THAT(Parsed("//a").path, ElementsAre("", "a"));
  EXPECT_THAT(Parsed("/a+b/%00").path, ElementsAre("a+b", std::string(1, '\0')));
}

TEST(QueryTest, DecodesParameters) {
  EXPECT_THAT(Parsed("/?a=1&b=x+y%26&c&&=z").parameters,
              ElementsAre(Pair("a", "1"), Pair("b", "x y&"), Pair("c", ""), Pair("", "z")));
  EXPECT_THAT(Parsed("/?").parameters, IsEmpty());
}

TEST(QueryTest, RefusesDamagedTargets) {
  for (const char* text : {"", "a", "http://x/", "*"}) {
    EXPECT_THAT(ParseTarget(text), StatusIs(StatusCode::kInvalidArgument, HasSubstr("does not begin")));
  }
  for (const char* text : {"/%", "/%4", "/%4g", "/a?x=%zz", "/a?%=1"}) {
    EXPECT_THAT(ParseTarget(text), StatusIs(StatusCode::kInvalidArgument, HasSubstr("%25")));
  }
}

TEST(QueryTest, ReadsNumbersWithinTheirRanges) {
  const RequestTarget target = Parsed("/?n=7&x=1.5&f=1&k=18446744073709551615");
  EXPECT_EQ(target.Integer("n", 1, 0, 10).value(), 7);
  EXPECT_EQ(target.Integer("missing", 3, 0, 10).value(), 3);
  EXPECT_EQ(target.Number("x", 1, 0.2, 60).value(), 1.5);
  EXPECT_TRUE(target.Flag("f", false).value());
  EXPECT_EQ(target.Key("k").value(), UINT64_MAX);
  EXPECT_EQ(target.Key("missing").value(), 0u);
}

TEST(QueryTest, NamesTheParameterItsValueAndTheRange) {
  for (const char* text : {"/?n=11", "/?n=-1", "/?n=", "/?n=1x", "/?n=1e3", "/?n=99999999999999999999"}) {
    EXPECT_THAT(Parsed(text).Integer("n", 1, 0, 10),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("parameter n"), HasSubstr("0 to 10"))))
        << text;
  }
  for (const char* text : {"/?x=nan", "/?x=inf", "/?x=0.1", "/?x=61", "/?x=0x1p3"}) {
    EXPECT_THAT(Parsed(text).Number("x", 1, 0.2, 60),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("0.2 to 60")))
        << text;
  }
  EXPECT_THAT(Parsed("/?f=true").Flag("f", false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"true\"")));
  EXPECT_THAT(Parsed("/?k=-1").Key("k"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("next")));
}

TEST(QueryTest, RefusesUnknownAndRepeatedParameters) {
  EXPECT_OK(Parsed("/?a=1&b=2").CheckNames({"a", "b", "c"}));
  EXPECT_THAT(Parsed("/?d=1").CheckNames({"a", "b"}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"d\""), HasSubstr("a, b"))));
  EXPECT_THAT(Parsed("/?a=1").CheckNames({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("none")));
  EXPECT_THAT(Parsed("/?a=1&a=2").CheckNames({"a"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
}

}  // namespace
}  // namespace reverb::internal
