#include "core/rows/where.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

struct FakeRow {
  std::map<std::string, WhereValue> tags;
  std::map<std::string, int64_t> lengths;
  int64_t version = 0;
  int64_t lag = 0;
  std::string key = "k";
};

class FakeRows : public WhereRows {
 public:
  FakeRows(const Where& where, std::vector<FakeRow> rows, bool is_complete = true)
      : where_(where), rows_(std::move(rows)), is_complete_(is_complete) {}

  size_t size() const override { return rows_.size(); }
  bool is_complete() const override { return is_complete_; }
  WhereValue Field(size_t row, WhereField field) const override {
    switch (field) {
      case WhereField::kKey:
        return WhereValue::Text(rows_[row].key);
      case WhereField::kGroup:
        return WhereValue::Missing();
      case WhereField::kVersion:
        return WhereValue::Integer(rows_[row].version);
      default:
        return WhereValue::Integer(rows_[row].lag);
    }
  }
  WhereValue Tag(size_t row, size_t name) const override {
    const auto found = rows_[row].tags.find(where_.names()[name]);
    return found == rows_[row].tags.end() ? WhereValue::Missing() : found->second;
  }
  bool HasColumn(size_t row, size_t name) const override {
    return rows_[row].lengths.contains(where_.names()[name]);
  }
  WhereValue Length(size_t row, size_t name) const override {
    const auto found = rows_[row].lengths.find(where_.names()[name]);
    return found == rows_[row].lengths.end() ? WhereValue::Missing() : WhereValue::Integer(found->second);
  }

 private:
  const Where& where_;
  const std::vector<FakeRow> rows_;
  const bool is_complete_;
};

bool Matches(std::string_view text, const FakeRow& row) {
  const Result<Where> where = Where::Parse(text);
  EXPECT_TRUE(where.ok()) << where.status().ToString();
  return where.ok() && where->Matches(FakeRows(*where, {row}), 0);
}

FakeRow Example() {
  return {.tags = {{"reward", WhereValue::Real(0.5)},
                   {"prompt", WhereValue::Integer(7)},
                   {"correct", WhereValue::Bool(true)},
                   {"split", WhereValue::Text("math")},
                   {"a b", WhereValue::Integer(3)}},
          .lengths = {{"tokens", 4000}},
          .version = 12,
          .lag = 2};
}

TEST(WhereTest, SelectsByTagsLengthsAndVersions) {
  for (const char* text : {"reward > 0 and tokens.length < 4096",
                           "prompt == 7",
                           "prompt in (6, 7)",
                           "prompt not in [1, 2]",
                           "split == 'math' and correct",
                           "not (reward < 0.5)",
                           "version - lag == 10",
                           "prompt % 2 == 1",
                           "-prompt < -6.5",
                           "`a b` == 3",
                           "has(tokens) and has(reward) and not has(other)",
                           "key == \"k\"",
                           "reward * 2 + 1 == 2",
                           "split in ('code', 'math')",
                           "prompt / 2 == 3.5",
                           "split < 'n'",
                           "true",
                           "tokens.length % 1000 == 0",
                           "1 + 2 * 3 == 7",
                           "(1 + 2) * 3 == 9",
                           "2 - 1 - 1 == 0",
                           "prompt in (prompt)",
                           "false or not false",
                           "correct == true",
                           "-7 % 3 == 2",
                           "7.5 % -2 == -0.5"}) {
    EXPECT_TRUE(Matches(text, Example())) << text;
  }
  for (const char* text : {"reward > 0.5", "tokens.length >= 4096", "prompt in ()", "split == 'code'",
                           "not correct", "lag > 2", "false"}) {
    EXPECT_FALSE(Matches(text, Example())) << text;
  }
}

TEST(WhereTest, MissingValuesMatchNeitherAConditionNorItsOpposite) {
  for (const char* text :
       {"other > 0", "not (other > 0)", "other == other", "other in (1)", "other not in (1)",
        "logprobs.length > 0", "reward > 'a'", "not (reward > split)", "prompt / 0 > 0", "prompt % 0 == 0",
        "correct > 0", "other + 1 > 0", "other and correct", "prompt and correct", "group == 'a'",
        "prompt in (1, other)"}) {
    EXPECT_FALSE(Matches(text, Example())) << text;
  }
  // Three-valued logic: what is missing does not matter where the other operand decides.
  EXPECT_TRUE(Matches("other > 0 or correct", Example()));
  EXPECT_TRUE(Matches("not (other > 0 and false)", Example()));
  EXPECT_TRUE(Matches("prompt in (other, 7)", Example()));
}

TEST(WhereTest, NumbersAreExactAndDoNotOverflow) {
  FakeRow row;
  row.tags["big"] = WhereValue::Integer((int64_t{1} << 53) + 1);
  row.tags["most"] = WhereValue::Integer(std::numeric_limits<int64_t>::max());
  row.tags["least"] = WhereValue::Integer(std::numeric_limits<int64_t>::min());
  row.tags["nan"] = WhereValue::Real(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(Matches("big > 9007199254740992.0", row));
  EXPECT_TRUE(Matches("big == 9007199254740993", row));
  EXPECT_TRUE(Matches("most + 1 > most", row));
  EXPECT_TRUE(Matches("-least > most", row));
  EXPECT_TRUE(Matches("least % -1 == 0", row));
  EXPECT_TRUE(Matches("most * most > most", row));
  EXPECT_FALSE(Matches("nan == nan", row));
  EXPECT_FALSE(Matches("not (nan > 0)", row));
}

TEST(WhereTest, AggregatesAreOverAllRowsOfAGroup) {
  const auto rows = [](std::vector<double> rewards) {
    std::vector<FakeRow> result;
    for (const double reward : rewards) result.push_back({.tags = {{"reward", WhereValue::Real(reward)}}});
    return result;
  };
  const auto matches = [](const char* text, std::vector<FakeRow> group, bool is_complete = true) {
    const Result<Where> where = Where::Parse(text);
    EXPECT_TRUE(where.ok()) << where.status().ToString();
    EXPECT_TRUE(where->has_aggregates());
    return where->MatchesAll(FakeRows(*where, std::move(group), is_complete));
  };
  EXPECT_TRUE(matches("std(reward) > 0", rows({0, 1})));
  EXPECT_FALSE(matches("std(reward) > 0", rows({0.1, 0.1, 0.1})));
  EXPECT_TRUE(matches("std(reward) == 0.5 and mean(reward) == 0.5", rows({0, 1})));
  EXPECT_TRUE(matches("min(reward) == -1 and max(reward) == 2 and sum(reward) == 1", rows({0, -1, 2})));
  EXPECT_TRUE(matches("count() == 3 and count(reward > 0) == 1", rows({0, -1, 2})));
  EXPECT_TRUE(matches("any(reward > 1) and not all(reward > 1)", rows({0, 2})));
  EXPECT_TRUE(matches("reward >= mean(reward) or count() == 2", rows({0, 2})));
  EXPECT_FALSE(matches("reward >= mean(reward) and count() == 2", rows({0, 2})));

  // A row without the value, and a group that others may join, match neither.
  std::vector<FakeRow> partly = rows({0, 1});
  partly.emplace_back();
  EXPECT_FALSE(matches("std(reward) > 0", partly));
  EXPECT_FALSE(matches("not (std(reward) > 0)", partly));
  EXPECT_TRUE(matches("any(reward > 0)", partly));
  EXPECT_FALSE(matches("all(reward >= 0)", partly));
  EXPECT_FALSE(matches("std(reward) > 0", rows({0, 1}), /*is_complete=*/false));
  EXPECT_FALSE(matches("not (std(reward) > 0)", rows({0, 1}), /*is_complete=*/false));
}

TEST(WhereTest, NamesAreListedOnce) {
  const Result<Where> where = Where::Parse("a > 0 and tokens.length > a and has(b) and version > 0");
  ASSERT_OK(where.status());
  EXPECT_THAT(where->names(), ElementsAre("a", "tokens", "b"));
  EXPECT_FALSE(where->has_aggregates());
}

TEST(WhereTest, ErrorsPointAtThePlace) {
  const struct {
    const char* text;
    const char* what;
    const char* caret;  // the last line
  } cases[] = {
      {"reward >", "ends where a value is expected", "\n          ^"},
      {"reward > 0 tokens", "expected and, or, or the end", "\n             ^"},
      {"reward = 1", "write == to compare", "\n         ^"},
      {"a && b", "write and instead of &&", "\n    ^"},
      {"!a", "write not instead of !", "\n  ^"},
      {"0 < a < 2", "comparisons cannot be chained", "\n        ^"},
      {"(a > 0", "expected )", "\n        ^"},
      {"a > 0)", "this ) closes nothing", "\n       ^"},
      {"tokens.size > 0", "a column has only .length", "\n         ^"},
      {"'a' + 1 > 0", "+ needs a number, not a string", "\n  ^"},
      {"1 and true", "and needs a truth value, not a number", "\n  ^"},
      {"'a' < 1", "this compares a string with a number", "\n      ^"},
      {"reward + 1", "the whole expression needs a truth value, not a number", "\n  ^"},
      {"median(a) > 0", "there is no function median", "\n  ^"},
      {"mean(std(a)) > 0", "an aggregate cannot contain another one", "\n       ^"},
      {"a in 3", "in needs a list", "\n       ^"},
      {"1 in (2, 'x')", "this list needs a number, not a string", "\n           ^"},
      {"a > 'x", "this string has no end", "\n      ^"},
      {"a > 99999999999999999999", "this integer is too large", "\n      ^"},
      {"a > 1e999", "outside of the range of a double", "\n      ^"},
      {"a > 12abc", "a number cannot continue", "\n        ^"},
      {"a ? b", "this character has no meaning here", "\n    ^"},
      {"and a", "expected a value before and", "\n  ^"},
      {"ä == 1", "this character has no meaning here", "\n  ^"},
      {"'ä' == 1 1", "this compares a string with a number", "\n      ^"},
      {"", "ends where a value is expected", "\n  ^"},
      {"a not 3", "must be followed by in", "\n    ^"},
      {"'\\n' == a", "are escapes", "\n   ^"},
      {"`a > 0", "this quoted name has no end", "\n  ^"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(Where::Parse(each.text),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr(each.what), EndsWith(each.caret))))
        << each.text;
  }
}

TEST(WhereTest, ErrorsOfLongTextsShowTheirSurroundings) {
  const std::string text = std::string(200, ' ') + "a = 1" + std::string(200, ' ');
  EXPECT_THAT(Where::Parse(text),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("…"), EndsWith("\n  " + std::string(51, ' ') + "^"))));
  EXPECT_THAT(Where::Parse("a > 0 and\nb = 1 and\nc > 0"),
              StatusIs(StatusCode::kInvalidArgument, EndsWith("\n  b = 1 and\n    ^")));
}

TEST(WhereTest, SizeAndDepthAreBounded) {
  EXPECT_THAT(Where::Parse(std::string(Where::kMaxBytes + 1, ' ')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("4097 bytes, more than 4096")));
  const auto nested = [](const std::string& open, const std::string& close, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += open;
    text += "a";
    for (size_t i = 0; i < times; ++i) text += close;
    return text;
  };
  EXPECT_OK(Where::Parse(nested("(", ")", 60)).status());
  for (const std::string& text : {nested("(", ")", 100), nested("not ", "", 100),
                                  nested("-", "", 100) + " > 0", nested("a in ((", "))", 100)}) {
    EXPECT_THAT(Where::Parse(text),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("nested more than 64 deep")))
        << text;
  }
  std::string sum = "1";
  for (int i = 0; i < 600; ++i) sum += "+1";
  EXPECT_THAT(Where::Parse(sum + " > 0"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("more than 1024 parts")));
}

}  // namespace
}  // namespace reverb::internal
