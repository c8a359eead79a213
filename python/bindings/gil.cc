#include "gil.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace reverb::python {
namespace {

std::atomic<uint64_t> num_forks{0};
std::atomic<bool> is_exiting{false};

// Returns whether this is the thread that ends the interpreter.
bool IsMainThread() { return syscall(SYS_gettid) == getpid(); }

void AfterForkInChild() {
  num_forks.fetch_add(1, std::memory_order_relaxed);
  ReplaceLogAfterFork();
}

}  // namespace

bool IsFinalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

uint64_t Origin::Generation() { return num_forks.load(std::memory_order_relaxed); }

void Origin::Refuse() {
  PyErr_SetString(
      PyExc_RuntimeError,
      "this object was created before this process was created by fork(), which does not copy threads and "
      "connections. Create it in the new process: a Client from before can be used there if its server is on "
      "the same host. Or start processes with multiprocessing's \"spawn\" or \"forkserver\" method.");
  nb::raise_python_error();
}

Timeout TimeoutFromSeconds(std::optional<double> seconds, const char* name) {
  if (!seconds) return std::nullopt;
  if (!(*seconds >= 0)) {  // NaN included
    RaiseValueError(std::string(name) + " (" + ShortRepr(nb::float_(*seconds)) +
                    ") must be a number of seconds from 0 on, or None for no limit");
  }
  constexpr double kMaxSeconds = 1e9;  // thirty years: practically forever, and far from overflow
  if (*seconds >= kMaxSeconds) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(*seconds * 1e9));
}

Timeout TimeoutFromMillis(std::optional<int64_t> millis) {
  if (!millis) return std::nullopt;
  constexpr int64_t kMaxMillis = int64_t{1} << 40;
  if (*millis >= kMaxMillis) return std::nullopt;
  return std::chrono::milliseconds(std::max<int64_t>(*millis, 0));
}

// --- GilRelease ---

namespace {

// The process exits without waiting for this thread.
[[noreturn]] void SleepForever() {
  while (true) pause();
}

}  // namespace

void GilRelease::Acquire() {
  // An exiting interpreter unwinds threads that acquire the GIL, through frames that do not support it. The
  // check catches most of them, the handler the rest.
  if ((is_exiting.load() || IsFinalizing()) && !IsMainThread()) SleepForever();
#ifdef __GLIBCXX__
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {
    SleepForever();
  }
#else
  PyEval_RestoreThread(state_);
#endif
}

bool GilRelease::ProcessSignals() {
  if (interrupted_) return false;
  if (is_exiting.load() && !IsMainThread()) return false;
  Acquire();
  EmitLog();
  // The interpreter's pending calls raise the exception that interrupted EmitLog().
  if (PyErr_CheckSignals() != 0 || (IsMainThread() && Py_MakePendingCalls() != 0)) interrupted_ = true;
  state_ = PyEval_SaveThread();
  return !interrupted_;
}

// --- Writers that are destroyed ---

namespace {

using Steady = std::chrono::steady_clock;
constexpr std::chrono::seconds kFlushTimeout{1};
constexpr std::chrono::milliseconds kShortFlushTimeout{50};  // enough if the server answers
constexpr std::chrono::seconds kShortTimeoutPeriod{10};      // after a failed flush
std::atomic<Steady::rep> last_failed_flush{0};               // 0 = none

}  // namespace

Timeout FlushOnDropTimeout() {
  const Steady::rep failed = last_failed_flush.load(std::memory_order_relaxed);
  const bool is_recent =
      failed != 0 && Steady::now() - Steady::time_point(Steady::duration(failed)) < kShortTimeoutPeriod;
  return is_recent ? std::chrono::nanoseconds(kShortFlushTimeout) : std::chrono::nanoseconds(kFlushTimeout);
}

void RecordFlushOnDrop(Timeout timeout, const Status& status) {
  if (status.code() == StatusCode::kDeadlineExceeded && timeout == Timeout(kFlushTimeout))
    last_failed_flush = Steady::now().time_since_epoch().count();
}

namespace {

std::string Unconfirmed(int64_t count) {
  return std::to_string(count) + (count == 1 ? " item that is" : " items that are") + " not confirmed";
}

}  // namespace

void LogDropped(int64_t count, const Status& why) {
  if (count == 0) return;
  Warn("a writer was dropped with " + Unconfirmed(count) + " and may be lost: " + why.ToString() +
       "; use it in a `with` block, or call flush() before");
  const nb::error_scope pending;
  EmitLog();
}

void LogClosed(int64_t count) {
  if (count == 0) return;
  Inform("a writer was closed with " + Unconfirmed(count) +
         " and may be lost; flush() before waits for them");
  const nb::error_scope pending;
  EmitLog();
}

// --- Turn ---

void Turn::Holder::Wait() {
  if (turn_.owner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "this writer is in the middle of another call of the same thread (from a log handler, or from "
        "the conversion of a value), and cannot be used there");
    nb::raise_python_error();
  }
  bool interrupted = false;
  {
    GilRelease released;
    while (!interrupted && !turn_.mu_.try_lock_for(std::chrono::milliseconds(50))) {
      interrupted = !released.ProcessSignals();
    }
  }
  if (interrupted) nb::raise_python_error();
}

void BindGil(nb::module_&) {
  pthread_atfork(nullptr, nullptr, AfterForkInChild);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    PrepareLogForExit();
    is_exiting = true;
  }));
}

}  // namespace reverb::python
