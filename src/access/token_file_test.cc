#include "access/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "access/glob.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::IsOk;
using ::reverb::test::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

class TokenFileTest : public testing::Test {
 protected:
  TokenFileTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("tokens_" + std::to_string(getpid()) + "_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "tokens").string();
  }
  ~TokenFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
  std::string path_;
};

TokenOptions Everything() {
  return {.name = "all-of.it_1",
          .read = true,
          .write = true,
          .admin = true,
          .tables = {"replay*", "a table, with % and =", "\n"},
          .expires = std::chrono::system_clock::from_time_t(1'800'000'000),
          .max_streams = 3,
          .max_bytes_per_second = 1'000'000,
          .max_waiting_bytes = 64};
}

TEST_F(TokenFileTest, FileHasTheHashAndNotTheToken) {
  const Result<std::string> token = AddToken(path_, Everything());
  ASSERT_OK(token);
  EXPECT_TRUE(token->starts_with(kTokenPrefix));
  EXPECT_EQ(token->size(), kTokenPrefix.size() + 43);
  EXPECT_THAT(Text(), Not(HasSubstr(*token)));
  EXPECT_THAT(Text(), Not(HasSubstr(token->substr(kTokenPrefix.size()))));
  EXPECT_THAT(Text(), HasSubstr(HexDigest(HashToken(*token))));
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST_F(TokenFileTest, KeepsEverythingAboutAToken) {
  ASSERT_OK(AddToken(path_, Everything()));
  ASSERT_OK(AddToken(path_, {.name = "second", .read = true}));
  const Result<std::vector<TokenEntry>> tokens = ReadTokens(path_);
  ASSERT_OK(tokens);
  ASSERT_EQ(tokens->size(), 2u);
  const TokenOptions& first = tokens->front().options;
  const TokenOptions wanted = Everything();
  EXPECT_EQ(first.name, wanted.name);
  EXPECT_TRUE(first.read && first.write && first.admin);
  EXPECT_EQ(first.tables, wanted.tables);
  EXPECT_EQ(first.expires, wanted.expires);
  EXPECT_EQ(first.max_streams, wanted.max_streams);
  EXPECT_EQ(first.max_bytes_per_second, wanted.max_bytes_per_second);
  EXPECT_EQ(first.max_waiting_bytes, wanted.max_waiting_bytes);
  EXPECT_EQ(FormatTokens(*tokens), Text());
}

TEST_F(TokenFileTest, TokensDiffer) {
  const Result<std::string> first = AddToken(path_, {.name = "a", .read = true});
  const Result<std::string> second = AddToken(path_, {.name = "b", .read = true});
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_NE(*first, *second);
}

TEST_F(TokenFileTest, RefusesASecondTokenOfTheSameName) {
  ASSERT_OK(AddToken(path_, {.name = "a", .read = true}));
  EXPECT_THAT(AddToken(path_, {.name = "a", .write = true}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("\"a\"")));
}

TEST_F(TokenFileTest, RemovesOneToken) {
  ASSERT_OK(AddToken(path_, {.name = "a", .read = true}));
  ASSERT_OK(AddToken(path_, {.name = "b", .read = true}));
  ASSERT_OK(RemoveToken(path_, "a"));
  EXPECT_THAT(RemoveToken(path_, "a"), StatusIs(StatusCode::kNotFound, HasSubstr("\"a\"")));
  const Result<std::vector<TokenEntry>> tokens = ReadTokens(path_);
  ASSERT_OK(tokens);
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_EQ(tokens->front().options.name, "b");
}

TEST_F(TokenFileTest, AddLeavesADamagedFileAlone) {
  std::ofstream(path_) << "something else\n";
  EXPECT_THAT(AddToken(path_, {.name = "a", .read = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("line 1")));
  EXPECT_EQ(Text(), "something else\n");
}

TEST_F(TokenFileTest, MissingFileNamesTheRemedy) {
  EXPECT_THAT(ReadTokens(path_), StatusIs(StatusCode::kNotFound, HasSubstr("reverb token new")));
  EXPECT_THAT(ReadTokens(folder_.string()), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a file")));
}

TEST(TokenTextTest, ErrorsNameTheLineAndTheWord) {
  const std::string hash(64, 'a');
  const std::string good = "token name=a sha256=" + hash + " rights=read tables=*";
  ASSERT_OK(ParseTokens(good));
  ASSERT_OK(ParseTokens("# comment\r\n\r\n" + good + "  \r\n"));
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"tokn name=a", "\"token \""},
      {"token", "\"name\" is missing"},
      {"token name=a sha256=" + hash + " rights=read", "\"tables\" is missing"},
      {"token name=a sha256=abc rights=read tables=*", "64 hexadecimal"},
      {"token name=a sha256=" + std::string(64, '0') + " rights=read tables=*", "zero"},
      {"token name=a sha256=" + hash + " rights=reed tables=*", "\"rights\""},
      {"token name=a sha256=" + hash + " rights= tables=*", "\"rights\""},
      {"token name= sha256=" + hash + " rights=read tables=*", "name of a token"},
      {"token name=a\"b sha256=" + hash + " rights=read tables=*", "name of a token"},
      {good + " tables=x", "twice"},
      {good + " expires=tomorrow", "2027-01-31T12:00:00Z"},
      {good + " expires=2027-02-30T12:00:00Z", "2027-01-31T12:00:00Z"},
      {good + " max_streams=0", "max_streams"},
      {good + " max_streams=1x", "max_streams"},
      {good + " max_bytes_per_second=99999999999999999999", "max_bytes_per_second"},
      {good + " super=1", "not known"},
      {good + " word", "key=value"},
      {"token name=a sha256=" + hash + " rights=read tables=a,,b", "empty pattern"},
      {"token name=a sha256=" + hash + " rights=read tables=%4", "%XX"},
      {"token name=a sha256=" + hash + " rights=read tables=%zz", "%XX"},
  };
  for (const auto& [line, problem] : bad) {
    EXPECT_THAT(
        ParseTokens("\n" + line + "\n"),
        StatusIs(StatusCode::kInvalidArgument, testing::AllOf(HasSubstr("line 2"), HasSubstr(problem))))
        << line;
  }
  EXPECT_THAT(ParseTokens(good + "\n" + good),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("two tokens named")));
  std::string other = good;
  other.replace(other.find("name=a"), 6, "name=b");
  EXPECT_THAT(ParseTokens(good + "\n" + other),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("another token")));
}

// A damaged file is refused or is another valid file; it never gives a token more rights than a valid line says.
TEST(TokenTextTest, DamageIsAnErrorOrAnotherFile) {
  const std::string good =
      FormatTokens({{Everything(), std::string(64, 'b')},
                    {{.name = "reader", .read = true, .tables = {"x"}}, std::string(64, 'c')}});
  ASSERT_OK(ParseTokens(good));
  for (size_t size = 0; size < good.size(); ++size) {
    const Result<std::vector<TokenEntry>> cut = ParseTokens(std::string_view(good).substr(0, size));
    if (cut.ok()) {
      EXPECT_LE(cut->size(), 2u);
    }
  }
  std::mt19937_64 rng(test::Seed());
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = good;
    damaged[rng() % damaged.size()] = static_cast<char>(rng());
    const Result<std::vector<TokenEntry>> tokens = ParseTokens(damaged);
    if (!tokens.ok()) {
      EXPECT_EQ(tokens.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    for (const TokenEntry& token : *tokens) {
      EXPECT_THAT(token.options.Validate(), IsOk());
      if (token.options.name == "reader") {
        EXPECT_FALSE(token.options.write || token.options.admin);
      }
    }
  }
}

TEST(TokenTextTest, HashesAreSha256) {
  EXPECT_EQ(HexDigest(HashToken("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(SameDigest(HashToken("abc"), HashToken("abc")));
  EXPECT_FALSE(SameDigest(HashToken("abc"), HashToken("abd")));
}

TEST(GlobTest, MatchesNamesOfTables) {
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("*", "replay"));
  EXPECT_TRUE(MatchesGlob("replay", "replay"));
  EXPECT_FALSE(MatchesGlob("replay", "replay2"));
  EXPECT_FALSE(MatchesGlob("replay", "my_replay"));
  EXPECT_TRUE(MatchesGlob("replay*", "replay2"));
  EXPECT_TRUE(MatchesGlob("*_eval", "a_b_eval"));
  EXPECT_FALSE(MatchesGlob("*_eval", "a_eval_b"));
  EXPECT_TRUE(MatchesGlob("a?c", "abc"));
  EXPECT_FALSE(MatchesGlob("a?c", "ac"));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(MatchesGlob("", "a"));
  EXPECT_TRUE(MatchesGlob("", ""));
  // Takes no exponential time.
  EXPECT_FALSE(MatchesGlob("*a*a*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

}  // namespace
}  // namespace reverb::internal
