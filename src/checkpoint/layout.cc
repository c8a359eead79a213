#include "checkpoint/layout.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace reverb::internal {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr size_t kOwnNameLength = 30;
constexpr size_t kSegmentDigits = 16;

// Convert between a Gregorian date and days since 1970-01-01 (Hinnant's algorithms).
int64_t DaysFromCivil(int64_t y, int64_t m, int64_t d) {
  y -= m <= 2;
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t yoe = y - era * 400;
  const int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

struct Date {
  int64_t year;
  int64_t month;
  int64_t day;
};
Date CivilFromDays(int64_t days) {
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t doe = days - era * 146097;
  const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  const int64_t mp = (5 * doy + 2) / 153;
  const int64_t month = mp < 10 ? mp + 3 : mp - 9;
  return {yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) / 5 + 1};
}

// Removes exactly `digits` digits from the front.
bool TakeNumber(std::string_view* text, size_t digits, int64_t* value) {
  if (text->size() < digits) return false;
  *value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const char c = (*text)[i];
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + (c - '0');
  }
  text->remove_prefix(digits);
  return true;
}

bool TakeChar(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::string JoinPath(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string ParentPath(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string CheckpointName(int64_t nanos) {
  int64_t seconds = nanos / kNanosPerSecond;
  int64_t fraction = nanos % kNanosPerSecond;
  if (fraction < 0) {
    fraction += kNanosPerSecond;
    --seconds;
  }
  int64_t days = seconds / 86400;
  int64_t second = seconds % 86400;
  if (second < 0) {
    second += 86400;
    --days;
  }
  const Date date = CivilFromDays(days);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d-%02d-%02d.%09dZ", static_cast<int>(date.year),
                static_cast<int>(date.month), static_cast<int>(date.day), static_cast<int>(second / 3600),
                static_cast<int>(second / 60 % 60), static_cast<int>(second % 60),
                static_cast<int>(fraction));
  return text;
}

std::optional<int64_t> ParseCheckpointName(std::string_view name) {
  int64_t year = 0;
  int64_t month = 0;
  int64_t day = 0;
  int64_t hour = 0;
  int64_t minute = 0;
  int64_t second = 0;
  if (!TakeNumber(&name, 4, &year) || !TakeChar(&name, '-') || !TakeNumber(&name, 2, &month) ||
      !TakeChar(&name, '-') || !TakeNumber(&name, 2, &day) || !TakeChar(&name, 'T') ||
      !TakeNumber(&name, 2, &hour)) {
    return std::nullopt;
  }
  const char separator = name.starts_with('-') ? '-' : ':';
  if (!TakeChar(&name, separator) || !TakeNumber(&name, 2, &minute) || !TakeChar(&name, separator) ||
      !TakeNumber(&name, 2, &second)) {
    return std::nullopt;
  }
  if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
      minute > 59 || second > 60) {
    return std::nullopt;
  }
  int64_t fraction = 0;
  if (TakeChar(&name, '.')) {
    int64_t scale = kNanosPerSecond;
    int64_t digit = 0;
    while (scale > 1 && TakeNumber(&name, 1, &digit)) fraction += digit * (scale /= 10);
    if (scale == kNanosPerSecond) return std::nullopt;
  }
  int64_t offset_minutes = 0;
  if (!TakeChar(&name, 'Z')) {
    const bool is_west = !name.empty() && name.front() == '-';
    int64_t hours = 0;
    int64_t minutes = 0;
    if ((!TakeChar(&name, '+') && !TakeChar(&name, '-')) || !TakeNumber(&name, 2, &hours) ||
        !TakeChar(&name, ':') || !TakeNumber(&name, 2, &minutes) || hours > 23 || minutes > 59) {
      return std::nullopt;
    }
    offset_minutes = (hours * 60 + minutes) * (is_west ? -1 : 1);
  }
  if (!name.empty()) return std::nullopt;
  const int64_t seconds =
      DaysFromCivil(year, month, day) * 86400 + hour * 3600 + (minute - offset_minutes) * 60 + second;
  return seconds * kNanosPerSecond + fraction;
}

bool IsOwnCheckpointName(std::string_view name) {
  if (name.size() != kOwnNameLength || name.back() != 'Z') return false;
  const auto nanos = ParseCheckpointName(name);
  if (!nanos) return false;
  std::string own(name);
  std::ranges::replace(own, ':', '-');
  return CheckpointName(*nanos) == own;
}

std::string SegmentFileName(uint64_t number, SegmentKind kind) {
  char text[kSegmentDigits + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return std::string(text) + (kind == SegmentKind::kChunks ? ".chunks" : ".pages");
}

std::optional<SegmentName> ParseSegmentFileName(std::string_view name) {
  SegmentName segment;
  if (name.ends_with(".chunks")) {
    segment.kind = SegmentKind::kChunks;
  } else if (name.ends_with(".pages")) {
    segment.kind = SegmentKind::kPages;
  } else {
    return std::nullopt;
  }
  if (name.find('.') != kSegmentDigits) return std::nullopt;
  for (const char c : name.substr(0, kSegmentDigits)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return std::nullopt;
    segment.number = segment.number << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return segment;
}

std::string SegmentPath(std::string_view checkpoint_path, uint64_t number, SegmentKind kind) {
  return JoinPath(JoinPath(ParentPath(checkpoint_path), kSegmentsName), SegmentFileName(number, kind));
}

Result<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem* fs, const std::string& root) {
  REVERB_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->ListDir(root));
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    const auto nanos = ParseCheckpointName(name);
    if (!nanos) continue;
    CheckpointEntry entry{.path = JoinPath(root, name), .created_nanos = *nanos};
    REVERB_ASSIGN_OR_RETURN(entry.is_complete, fs->FileExists(JoinPath(entry.path, kManifestName)));
    if (!entry.is_complete) {
      REVERB_ASSIGN_OR_RETURN(entry.is_complete, fs->FileExists(JoinPath(entry.path, kDmReverbMark)));
      entry.is_foreign = entry.is_complete || !IsOwnCheckpointName(name);
    }
    entries.push_back(std::move(entry));
  }
  std::ranges::stable_sort(entries, {}, &CheckpointEntry::created_nanos);
  return entries;
}

Status CreateDurableDir(FileSystem* fs, const std::string& path) {
  REVERB_RETURN_IF_ERROR(fs->CreateDir(path, FileSystem::Parents::kCreateMissing));
  // Syncs all parents, because an earlier attempt may have created a directory and failed before syncing its
  // parent. A directory that we may not open contains nothing that we created.
  for (std::string at = path;;) {
    const std::string parent = ParentPath(at);
    if (parent == at) return Status::Ok();
    Status status = fs->SyncDir(parent);
    if (!status.ok() && status.code() != StatusCode::kPermissionDenied) return status;
    if (parent == ".") return Status::Ok();
    at = parent;
  }
}

Result<std::string> ReadWholeFile(FileSystem* fs, const std::string& path, uint64_t max_bytes) {
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs->NewRandomAccessFile(path));
  if (file->size() > max_bytes) {
    return Status::DataLoss("\"" + path + "\" has " + std::to_string(file->size()) + " bytes; at most " +
                            std::to_string(max_bytes) + " were expected");
  }
  std::string bytes(file->size(), '\0');
  REVERB_ASSIGN_OR_RETURN(const size_t read,
                          file->Read(0, std::span(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size())));
  bytes.resize(read);
  return bytes;
}

}  // namespace reverb::internal
