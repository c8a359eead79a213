#include "reverb/status.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace reverb {

std::string_view DetailName(Detail detail) {
  switch (detail) {
    case Detail::kNone:
      return "";
    case Detail::kRateLimited:
      return "RATE_LIMITED";
    case Detail::kMemoryFull:
      return "MEMORY_FULL";
    case Detail::kTableClosed:
      return "TABLE_CLOSED";
    case Detail::kInvalidPriority:
      return "INVALID_PRIORITY";
    case Detail::kCorruptData:
      return "CORRUPT_DATA";
    case Detail::kQueued:
      return "QUEUED";
  }
  return "";
}

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";  // a value received from outside
}

// An OK status has neither message nor detail.
Status::Status(StatusCode code, std::string message, Detail detail)
    : rep_(code == StatusCode::kOk ? nullptr : std::make_unique<Rep>(Rep{code, detail, std::move(message)})) {
}

Status Status::Prefixed(std::string_view prefix) const {
  if (ok()) return *this;
  std::string text(prefix);
  text.append(": ").append(message());
  return Status(code(), std::move(text), detail());
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code()));
  if (ok()) return text;
  text += ": ";
  text += message();
  if (detail() != Detail::kNone) {
    const std::string_view name = DetailName(detail());
    text += " [";
    text += name.empty() ? "detail " + std::to_string(static_cast<int>(detail())) : std::string(name);
    text += "]";
  }
  return text;
}

namespace internal {

void AbortOnMissingValue(const Status& status) {
  // An error whose Status was moved away, as by std::move(result).status(), has none to print.
  const std::string text = status.ok() ? "its error was moved away" : status.ToString();
  std::fprintf(
      stderr,
      "reverb: a Result has no value: %s\nCheck ok() before using the value of a call that may fail.\n",
      text.c_str());
  std::abort();
}

Status RequireError(Status status) {
  assert(!status.ok() && "a Result without a value needs an error");
  if (status.ok()) return Status::Internal("a Result was created from a Status that is OK");
  return status;
}

}  // namespace internal
}  // namespace reverb
