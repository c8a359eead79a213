// tokens_fuzz.cc — tokens files. One that parses is valid, and stays the same when it is written and read again; an error
// names a line.
#include <string>
#include <string_view>
#include <vector>

#include "access/token_file.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reverb;            // NOLINT
  using namespace reverb::internal;  // NOLINT
  const Result<std::vector<TokenEntry>> tokens =
      ParseTokens(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!tokens.ok()) {
    FUZZ_CHECK(tokens.status().code() == StatusCode::kInvalidArgument);
    FUZZ_CHECK(tokens.status().message().starts_with("line "));
    FUZZ_CHECK(tokens.status().message().size() < 600);
    return 0;
  }
  for (const TokenEntry& token : *tokens) {
    FUZZ_CHECK(token.options.Validate().ok());
    FUZZ_CHECK(ParseDigest(token.sha256).ok());
  }
  const std::string text = FormatTokens(*tokens);
  const Result<std::vector<TokenEntry>> again = ParseTokens(text);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(FormatTokens(*again) == text);
  return 0;
}
