// log.h — passes the library's log messages to Python's logging.
//
// The library's threads never acquire the GIL. They put messages into a bounded queue. Python threads that
// call the extension, or wait in it, pass the messages to logging.getLogger("reverb").
#ifndef REVERB_PYTHON_LOG_H_
#define REVERB_PYTHON_LOG_H_

#include <atomic>
#include <string_view>

namespace reverb::python {

extern std::atomic<bool> log_is_waiting;
void EmitWaitingLog();

// Queue a message, as the library does. They need no GIL.
void Warn(std::string_view message);
void Inform(std::string_view message);

// Drops the messages of the parent, in a child created by fork(): its threads may hold the lock of the queue.
void ReplaceLogAfterFork();

// Reads from the logger, while it still exists, whether later warnings go to sys.stderr. Called by atexit.
// REQUIRES: the GIL.
void PrepareLogForExit();

// Emits the queued messages. Exceptions of handlers are reported as unraisable. REQUIRES: the GIL, no pending
// exception.
inline void EmitLog() {
  if (log_is_waiting.load(std::memory_order_relaxed)) [[unlikely]]
    EmitWaitingLog();
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_LOG_H_
