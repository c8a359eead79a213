#include "access/token_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <set>
#include <utility>

namespace reverb {
namespace internal {
namespace {

constexpr std::string_view kHeader =
    "# Tokens of a Reverb server, a line for each. `reverb token` changes this file; it has hashes, not "
    "tokens.\n";
constexpr char kHexDigits[] = "0123456789abcdef";
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxPatterns = 1000;
constexpr size_t kMaxPatternBytes = 4096;

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool IsNameByte(char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-'; }
bool IsPlainPatternByte(char c) { return IsNameByte(c) || c == '*' || c == '?' || c == '/' || c == ':'; }

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string EscapePattern(std::string_view pattern) {
  std::string text;
  for (const char c : pattern) {
    if (IsPlainPatternByte(c)) {
      text += c;
    } else {
      const auto byte = static_cast<uint8_t>(c);
      text += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  return text;
}

Result<std::string> UnescapePattern(std::string_view text) {
  std::string pattern;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsPlainPatternByte(text[i])) {
      pattern += text[i];
      continue;
    }
    const int high = text[i] == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low < 0) return Status::InvalidArgument("\"tables\" has a character that must be written as %XX");
    pattern += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (pattern.empty()) return Status::InvalidArgument("\"tables\" has an empty pattern");
  return pattern;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<int64_t> ParseLimit(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    return Status::InvalidArgument("\"" + std::string(key) + "\" must be a whole number above 0");
  }
  return value;
}

Status ParseRights(std::string_view text, TokenOptions* options) {
  for (const std::string_view right : Split(text, ',')) {
    if (right == RightName(Right::kRead)) {
      options->read = true;
    } else if (right == RightName(Right::kWrite)) {
      options->write = true;
    } else if (right == RightName(Right::kAdmin)) {
      options->admin = true;
    } else {
      return Status::InvalidArgument("\"rights\" must be some of read, write and admin, separated by commas");
    }
  }
  return Status::Ok();
}

// Sets the field that a word of a line names.
Status ParseWord(std::string_view key, std::string_view value, TokenEntry* entry) {
  TokenOptions& options = entry->options;
  if (key == "name") {
    options.name = value;
  } else if (key == "sha256") {
    REVERB_ASSIGN_OR_RETURN(const TokenDigest digest, ParseDigest(value));
    entry->sha256 = HexDigest(digest);
  } else if (key == "rights") {
    return ParseRights(value, &options);
  } else if (key == "tables") {
    options.tables.clear();
    for (const std::string_view part : Split(value, ',')) {
      REVERB_ASSIGN_OR_RETURN(std::string pattern, UnescapePattern(part));
      options.tables.push_back(std::move(pattern));
    }
  } else if (key == "expires") {
    REVERB_ASSIGN_OR_RETURN(options.expires, ParseTime(value));
  } else if (key == "max_streams") {
    REVERB_ASSIGN_OR_RETURN(options.max_streams, ParseLimit(key, value));
  } else if (key == "max_bytes_per_second") {
    REVERB_ASSIGN_OR_RETURN(options.max_bytes_per_second, ParseLimit(key, value));
  } else if (key == "max_waiting_bytes") {
    REVERB_ASSIGN_OR_RETURN(options.max_waiting_bytes, ParseLimit(key, value));
  } else {
    // A server that ignored a word might permit more than the file says.
    return Status::InvalidArgument("\"" + std::string(key.substr(0, 64)) +
                                   "\" is not known to this version of Reverb");
  }
  return Status::Ok();
}

Result<TokenEntry> ParseLine(std::string_view line) {
  TokenEntry entry;
  std::set<std::string_view> keys;
  bool is_first = true;
  for (const std::string_view word : Split(line, ' ')) {
    if (std::exchange(is_first, false)) {
      if (word != "token") return Status::InvalidArgument("expected a line that begins with \"token \"");
      continue;
    }
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      return Status::InvalidArgument("expected words of the form key=value");
    const std::string_view key = word.substr(0, equals);
    if (!keys.insert(key).second) {
      return Status::InvalidArgument("\"" + std::string(key.substr(0, 64)) + "\" is there twice");
    }
    REVERB_RETURN_IF_ERROR(ParseWord(key, word.substr(equals + 1), &entry));
  }
  for (const char* needed : {"name", "sha256", "rights", "tables"}) {
    if (!keys.contains(needed)) return Status::InvalidArgument("\"" + std::string(needed) + "\" is missing");
  }
  REVERB_RETURN_IF_ERROR(entry.options.Validate());
  return entry;
}

Status FileProblem(const std::string& path, const std::string& what) {
  return Status::InvalidArgument("tokens file \"" + path + "\": " + what);
}

// Replaces the file, so that a server reads the old or the new text, never a part.
Status WriteTokensFile(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  (void)unlink(draft.c_str());
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return FileProblem(path, std::string("cannot be written: ") + std::strerror(errno));
  // A server that runs as another user keeps its access to the file.
  struct stat present {};
  if (stat(path.c_str(), &present) == 0) {
    if (present.st_uid != geteuid() || present.st_gid != getegid()) {
      (void)!fchown(fd, present.st_uid, present.st_gid);
    }
    (void)fchmod(fd, present.st_mode & 0640);
  }
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  const bool is_written = done == text.size() && fsync(fd) == 0;
  const int error = errno;
  (void)close(fd);
  if (!is_written || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int reason = is_written ? errno : error;
    (void)unlink(draft.c_str());
    return FileProblem(path, std::string("cannot be written: ") + std::strerror(reason));
  }
  return Status::Ok();
}

Result<std::string> NewToken() {
  uint8_t bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Status::Internal(std::string("the system has no random bytes: ") + std::strerror(errno));
  }
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string token(kTokenPrefix);
  uint32_t bits = 0;
  int count = 0;
  for (const uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) token += kAlphabet[bits >> (count - 6) & 63];
  }
  token += kAlphabet[bits << (6 - count) & 63];
  OPENSSL_cleanse(bytes, sizeof bytes);
  return token;
}

}  // namespace

TokenDigest HashToken(std::string_view token) {
  TokenDigest digest{};
  unsigned int size = digest.size();
  // Fails only without memory; a digest of zeros is then the same as no token.
  if (EVP_Digest(token.data(), token.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    digest.fill(0);
  return digest;
}

bool SameDigest(const TokenDigest& a, const TokenDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string HexDigest(const TokenDigest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  return text;
}

Result<TokenDigest> ParseDigest(std::string_view hex) {
  TokenDigest digest{};
  if (hex.size() != 2 * digest.size() || std::ranges::any_of(hex, [](char c) { return HexValue(c) < 0; })) {
    return Status::InvalidArgument("\"sha256\" must be 64 hexadecimal digits");
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(HexValue(hex[2 * i]) * 16 + HexValue(hex[2 * i + 1]));
  }
  if (digest == TokenDigest{}) return Status::InvalidArgument("\"sha256\" is zero, which no token has");
  return digest;
}

Result<std::vector<TokenEntry>> ParseTokens(std::string_view text) {
  std::vector<TokenEntry> tokens;
  std::set<std::string> names;
  std::set<std::string> hashes;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = "line " + std::to_string(number);
    Result<TokenEntry> entry = ParseLine(line);
    if (!entry.ok()) return entry.status().Prefixed(where);
    if (!names.insert(entry->options.name).second) {
      return Status::InvalidArgument(where + ": there are two tokens named \"" + entry->options.name + "\"");
    }
    if (!hashes.insert(entry->sha256).second) {
      return Status::InvalidArgument(where + ": the hash of \"" + entry->options.name +
                                     "\" is that of another token, too");
    }
    if (tokens.size() == kMaxTokens) {
      return Status::InvalidArgument(where + ": there are more than " + std::to_string(kMaxTokens) +
                                     " tokens");
    }
    tokens.push_back(*std::move(entry));
  }
  return tokens;
}

std::string FormatTokens(const std::vector<TokenEntry>& tokens) {
  std::string text(kHeader);
  for (const TokenEntry& token : tokens) {
    const TokenOptions& options = token.options;
    std::string rights;
    for (const auto& [has, right] : {std::pair(options.read, Right::kRead),
                                     {options.write, Right::kWrite},
                                     {options.admin, Right::kAdmin}}) {
      if (has) rights += (rights.empty() ? "" : ",") + std::string(RightName(right));
    }
    std::string tables;
    for (const std::string& pattern : options.tables) {
      tables += (tables.empty() ? "" : ",") + EscapePattern(pattern);
    }
    text +=
        "token name=" + options.name + " sha256=" + token.sha256 + " rights=" + rights + " tables=" + tables;
    if (options.expires) text += " expires=" + TimeText(*options.expires);
    const auto limit = [&text](const char* key, const std::optional<int64_t>& value) {
      if (value) text += " " + std::string(key) + "=" + std::to_string(*value);
    };
    limit("max_streams", options.max_streams);
    limit("max_bytes_per_second", options.max_bytes_per_second);
    limit("max_waiting_bytes", options.max_waiting_bytes);
    text += "\n";
  }
  return text;
}

Result<std::string> ReadTokensFile(const std::string& path, uint32_t* mode) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string reason = std::strerror(errno);
    if (errno == ENOENT) {
      return Status::NotFound("tokens file \"" + path +
                              "\" does not exist; `reverb token new` creates it with a first token");
    }
    return FileProblem(path, "cannot be read: " + reason);
  }
  struct stat about {};
  std::string text;
  Status status;
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    status = FileProblem(path, "is not a file");
  }
  char part[4096];
  ssize_t size = 0;
  while (status.ok() && (size = read(fd, part, sizeof part)) != 0) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      status = FileProblem(path, std::string("cannot be read: ") + std::strerror(errno));
    } else {
      text.append(part, static_cast<size_t>(size));
      if (text.size() > kMaxTokensFileBytes) status = FileProblem(path, "is larger than 64 MiB");
    }
  }
  (void)close(fd);
  if (!status.ok()) return status;
  if (mode != nullptr) *mode = about.st_mode & 0777;
  return text;
}

std::string TimeText(std::chrono::system_clock::time_point time) {
  const time_t seconds = std::chrono::system_clock::to_time_t(time);
  tm parts{};
  char text[64];
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, size);
}

Result<std::chrono::system_clock::time_point> ParseTime(std::string_view text) {
  tm parts{};
  const std::string copy(text);
  // The length excludes times that strptime() accepts with fewer digits or trailing text.
  const char* const end = copy.size() == 20 ? strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) : nullptr;
  const time_t seconds = end != nullptr && *end == '\0' ? timegm(&parts) : -1;
  const auto time = std::chrono::system_clock::from_time_t(seconds);
  if (seconds < 0 || TimeText(time) != text) {
    return Status::InvalidArgument("\"" + copy.substr(0, 64) +
                                   "\" is not a time of the form 2027-01-31T12:00:00Z");
  }
  return time;
}

}  // namespace internal

Status UsageLimits::Validate() const {
  for (const auto& [key, limit] :
       {std::pair("max_streams", max_streams), std::pair("max_bytes_per_second", max_bytes_per_second),
        std::pair("max_waiting_bytes", max_waiting_bytes)}) {
    if (limit && *limit < 1) {
      return Status::InvalidArgument(std::string(key) + " is " + std::to_string(*limit) +
                                     "; give a number above 0, or none for no limit");
    }
  }
  return Status::Ok();
}

Status TokenOptions::Validate() const {
  if (name.empty() || name.size() > internal::kMaxNameBytes ||
      !std::ranges::all_of(name, internal::IsNameByte)) {
    return Status::InvalidArgument(
        "the name of a token has 1 to 64 letters, digits, \".\", \"_\" and \"-\"; got \"" +
        name.substr(0, internal::kMaxNameBytes) + "\"");
  }
  if (!read && !write && !admin) {
    return Status::InvalidArgument("token \"" + name + "\" has no right; give it read, write or admin");
  }
  if (tables.empty() || tables.size() > internal::kMaxPatterns) {
    return Status::InvalidArgument("token \"" + name + "\" has " + std::to_string(tables.size()) +
                                   " patterns of tables; give it 1 to 1000, such as \"*\"");
  }
  for (const std::string& pattern : tables) {
    if (pattern.empty() || pattern.size() > internal::kMaxPatternBytes) {
      return Status::InvalidArgument("token \"" + name + "\": a pattern of tables has " +
                                     std::to_string(pattern.size()) + " bytes; give it 1 to 4096");
    }
  }
  const auto now_or_later = std::chrono::system_clock::time_point();
  if (expires && (*expires < now_or_later || internal::TimeText(*expires).size() != 20)) {
    return Status::InvalidArgument("token \"" + name + "\" expires before 1970 or after 9999");
  }
  return UsageLimits{.max_streams = max_streams,
                     .max_bytes_per_second = max_bytes_per_second,
                     .max_waiting_bytes = max_waiting_bytes}
      .Validate()
      .Prefixed("token \"" + name + "\"");
}

Result<std::vector<TokenEntry>> ReadTokens(const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(const std::string text, internal::ReadTokensFile(path));
  Result<std::vector<TokenEntry>> tokens = internal::ParseTokens(text);
  if (!tokens.ok()) return tokens.status().Prefixed("tokens file \"" + path + "\"");
  return tokens;
}

Result<std::string> AddToken(const std::string& path, const TokenOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  std::vector<TokenEntry> tokens;
  Result<std::vector<TokenEntry>> present = ReadTokens(path);
  if (present.ok()) {
    tokens = *std::move(present);
  } else if (present.status().code() != StatusCode::kNotFound) {
    return present.status();
  }
  for (const TokenEntry& token : tokens) {
    if (token.options.name != options.name) continue;
    return Status::AlreadyExists("tokens file \"" + path + "\" has a token named \"" + options.name +
                                 "\" already; remove it first, or choose another name");
  }
  REVERB_ASSIGN_OR_RETURN(std::string token, internal::NewToken());
  tokens.push_back({.options = options, .sha256 = internal::HexDigest(internal::HashToken(token))});
  REVERB_RETURN_IF_ERROR(internal::WriteTokensFile(path, internal::FormatTokens(tokens)));
  return token;
}

Status RemoveToken(const std::string& path, const std::string& name) {
  REVERB_ASSIGN_OR_RETURN(std::vector<TokenEntry> tokens, ReadTokens(path));
  if (std::erase_if(tokens, [&name](const TokenEntry& token) { return token.options.name == name; }) == 0) {
    return Status::NotFound("tokens file \"" + path + "\" has no token named \"" + name + "\"");
  }
  return internal::WriteTokensFile(path, internal::FormatTokens(tokens));
}

}  // namespace reverb
