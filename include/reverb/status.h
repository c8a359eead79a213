// status.h — the results of calls that may fail.
//
// A Status is OK, or has a code, a human-readable message (the object, the value and the remedy) and a
// Detail that programs may act on. Codes have the same numbers as gRPC's, so converting one is a cast.
// A Result<T> is a T or the error that occurred instead.
//
// Threads: values; distinct objects may be used from distinct threads.
#ifndef REVERB_STATUS_H_
#define REVERB_STATUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace reverb {

// The numbers are sent over the network: never change them.
enum class StatusCode : uint8_t {
  kOk = 0,
  kCancelled = 1,  // by the caller, or by Close()
  kUnknown = 2,
  kInvalidArgument = 3,  // invalid in any state of the system
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // would not fit even in an empty store
  kFailedPrecondition = 9,  // do not retry until the state has changed
  kAborted = 10,
  kOutOfRange = 11,  // the end of a sequence was reached
  kUnimplemented = 12,
  kInternal = 13,     // a bug in the library
  kUnavailable = 14,  // retrying the same call may help
  kDataLoss = 15,     // stored or received bytes are damaged
  kUnauthenticated = 16,
};

// Distinguishes errors with the same code. The numbers are sent over the network.
enum class Detail : uint8_t {
  kNone = 0,
  kRateLimited = 1,  // the table's rate limiter did not allow it in time
  kMemoryFull = 2,   // the store's max_bytes did not allow it in time
  kTableClosed = 3,
  kInvalidPriority = 4,
  kCorruptData = 5,
  kQueued = 6,  // waited behind earlier callers of the same kind
};
// Returns "RATE_LIMITED" and so on; empty for kNone and unknown numbers.
std::string_view DetailName(Detail detail);

// Returns "INVALID_ARGUMENT" and so on.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message, Detail detail = Detail::kNone);

  Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  static Status Ok() { return Status(); }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
  static Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status DeadlineExceeded(std::string m) { return {StatusCode::kDeadlineExceeded, std::move(m)}; }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
  static Status PermissionDenied(std::string m) { return {StatusCode::kPermissionDenied, std::move(m)}; }
  static Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
  static Status FailedPrecondition(std::string m) { return {StatusCode::kFailedPrecondition, std::move(m)}; }
  static Status OutOfRange(std::string m) { return {StatusCode::kOutOfRange, std::move(m)}; }
  static Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
  static Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }

  [[nodiscard]] bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  Detail detail() const { return rep_ ? rep_->detail : Detail::kNone; }
  // Empty when OK. Valid as long as this Status is neither assigned to nor destroyed.
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }

  Status WithDetail(Detail detail) && {
    if (rep_) rep_->detail = detail;
    return std::move(*this);
  }

  // Returns this status with `prefix` and ": " before its message; OK stays OK.
  Status Prefixed(std::string_view prefix) const;

  // Returns "OK", or "DEADLINE_EXCEEDED: table "per": …".
  std::string ToString() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.detail() == b.detail() && a.message() == b.message();
  }

 private:
  struct Rep {
    StatusCode code;
    Detail detail;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;  // null when OK, so that success costs one pointer
};

namespace internal {

// Prints the error to stderr and aborts.
[[noreturn]] void AbortOnMissingValue(const Status& status);
// Returns `status`; INTERNAL if it is OK, which is a bug of the caller.
Status RequireError(Status status);

}  // namespace internal

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: meant to be implicit
  // NOLINTNEXTLINE: meant to be implicit
  Result(Status status) : status_(internal::RequireError(std::move(status))) {}

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // REQUIRES: ok(). Otherwise value(), * and -> print the status to stderr and abort the process, in every
  // build type: `Server::Start(...).value()` is for programs that cannot continue without the value. The
  // check costs nothing where the compiler sees an earlier test of ok().
  const T& value() const& {
    CheckOk();
    return *value_;
  }
  T& value() & {
    CheckOk();
    return *value_;
  }
  // Returns by value, so that `for (x : Call().value())` does not dangle.
  T value() && {
    CheckOk();
    return *std::move(value_);
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  void CheckOk() const {
    if (!ok()) [[unlikely]]
      internal::AbortOnMissingValue(status_);
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace reverb

// Returns from the enclosing function when `expr` is not OK.
#define REVERB_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::reverb::Status reverb_status_ = (expr); !reverb_status_.ok()) return reverb_status_; \
  } while (false)

// Declares or assigns `lhs` from a Result, or returns its Status.
#define REVERB_ASSIGN_OR_RETURN(lhs, expr) \
  REVERB_ASSIGN_OR_RETURN_IMPL_(REVERB_CONCAT_(reverb_result_, __LINE__), lhs, expr)
#define REVERB_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return std::move(result).status();   \
  lhs = *std::move(result)
#define REVERB_CONCAT_(a, b) REVERB_CONCAT_INNER_(a, b)
#define REVERB_CONCAT_INNER_(a, b) a##b

#endif  // REVERB_STATUS_H_
