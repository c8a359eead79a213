// errors.h — conversion of Status to Python's exceptions.
//
//   INVALID_ARGUMENT    ValueError            DEADLINE_EXCEEDED  reverb.DeadlineExceededError
//   RESOURCE_EXHAUSTED  IndexError            UNIMPLEMENTED      NotImplementedError
//   all others          RuntimeError
//
// Each exception has the attributes `code`, the name of the status code ("NOT_FOUND"), and `detail`, a word
// for programs ("RATE_LIMITED") or None.
#ifndef REVERB_PYTHON_ERRORS_H_
#define REVERB_PYTHON_ERRORS_H_

#include <string>
#include <string_view>

#include "python_api.h"
#include "reverb/status.h"

namespace reverb::python {

[[noreturn]] void Raise(const Status& status);
// The same with another message.
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

// Raise exceptions of reverb.errors that derive from several built-in ones.
[[noreturn]] void RaiseStructureError(const std::string& message);
[[noreturn]] void RaiseStepNotAvailable(const std::string& message);

// TypeError(message).
[[noreturn]] void RaiseTypeError(const std::string& message);
[[noreturn]] void RaiseValueError(const std::string& message);

// Clears the pending exception, for callers that replace it or have a fallback. Rethrows exceptions that are
// not an `Exception`, such as KeyboardInterrupt.
void ClearException();

// For callbacks, whose exceptions nobody can catch: reports one as unraisable. Others than `Exception`, such as Ctrl-C or
// what a signal handler raised meanwhile, are raised in the main thread at the next point where it handles signals.
void ReportOrRaiseLater(nb::python_error& error);

// Returns a str for text from other programs, which may contain bytes that are not UTF-8.
nb::object Text(std::string_view text);

// Returns repr(object), shortened for a message.
std::string ShortRepr(nb::handle object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ERRORS_H_
