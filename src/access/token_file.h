// token_file.h — the file of tokens: a line for each, which has the token's hash and what it permits.
//
//   # comment
//   token name=actors sha256=9f86… rights=read,write tables=replay*,queue expires=2027-01-31T12:00:00Z max_streams=64
//
// In `tables`, bytes other than letters, digits and "._-*?/:" are written as %XX.
//
// Threads: free functions without state.
#ifndef REVERB_ACCESS_TOKEN_FILE_H_
#define REVERB_ACCESS_TOKEN_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/access.h"
#include "reverb/status.h"

namespace reverb::internal {

using TokenDigest = std::array<uint8_t, 32>;  // SHA-256

// What a token begins with, so that tools that look for secrets recognize one.
inline constexpr std::string_view kTokenPrefix = "rvb_";
// Longer texts are no tokens, and are not hashed.
inline constexpr size_t kMaxTokenBytes = 512;
inline constexpr size_t kMaxTokens = 100'000;
inline constexpr size_t kMaxTokensFileBytes = size_t{64} << 20;

TokenDigest HashToken(std::string_view token);
// Takes the same time wherever the two differ.
bool SameDigest(const TokenDigest& a, const TokenDigest& b);
std::string HexDigest(const TokenDigest& digest);
// INVALID_ARGUMENT unless the text is 64 hexadecimal digits.
Result<TokenDigest> ParseDigest(std::string_view hex);

// An error names the line. Two tokens must not have the same name or hash.
Result<std::vector<TokenEntry>> ParseTokens(std::string_view text);
std::string FormatTokens(const std::vector<TokenEntry>& tokens);
// Reads the file; an error names it. `mode` receives the permission bits.
Result<std::string> ReadTokensFile(const std::string& path, uint32_t* mode = nullptr);

// Returns "2027-01-31T12:00:00Z".
std::string TimeText(std::chrono::system_clock::time_point time);
Result<std::chrono::system_clock::time_point> ParseTime(std::string_view text);

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_TOKEN_FILE_H_
