// errors.h — from Status to Python's exceptions.
//
//   INVALID_ARGUMENT    ValueError            DEADLINE_EXCEEDED  reverb.DeadlineExceededError
//   RESOURCE_EXHAUSTED  IndexError            UNIMPLEMENTED      NotImplementedError
//   all others          RuntimeError
//
// Each exception has the attribute `code`, the name of the status code ("NOT_FOUND"), and `detail`, what a
// program may act on ("RATE_LIMITED") or None.
#ifndef REVERB_PYTHON_ERRORS_H_
#define REVERB_PYTHON_ERRORS_H_

#include <string>
#include <string_view>

#include "python_api.h"
#include "reverb/status.h"

namespace reverb::python {

[[noreturn]] void Raise(const Status& status);
// The same with another text.
[[noreturn]] void Raise(const Status& status, const std::string& message);

inline void RaiseUnlessOk(const Status& status) {
  if (!status.ok()) [[unlikely]]
    Raise(status);
}
template <typename T>
T ValueOrRaise(Result<T> result) {
  if (!result.ok()) [[unlikely]]
    Raise(result.status());
  return *std::move(result);
}

// Exceptions of reverb.errors that belong to several of Python's kinds.
[[noreturn]] void RaiseStructureError(const std::string& message);
[[noreturn]] void RaiseStepNotAvailable(const std::string& message);

// TypeError(message).
[[noreturn]] void RaiseTypeError(const std::string& message);
[[noreturn]] void RaiseValueError(const std::string& message);

// Clears the pending exception, for callers that have a better one or another way. What is no `Exception`, as
// KeyboardInterrupt, is thrown on.
void ClearException();

// A str of what others have written: UTF-8, unless it is, or quotes, bytes that are not.
nb::object Text(std::string_view text);

// repr(object), cut to a length fit for a message.
std::string ShortRepr(nb::handle object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ERRORS_H_
