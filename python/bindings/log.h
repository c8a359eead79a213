// log.h — the library's messages on their way to Python's logging.
//
// No thread of the library ever takes the GIL. What they log is put into a bounded queue, and handed to
// logging.getLogger("reverb") by threads of Python that call into the extension or wait in it.
#ifndef REVERB_PYTHON_LOG_H_
#define REVERB_PYTHON_LOG_H_

#include <atomic>
#include <string_view>

namespace reverb::python {

extern std::atomic<bool> log_is_waiting;
void EmitWaitingLog();

// Queue a message, as the library does. Need no GIL.
void Warn(std::string_view message);
void Inform(std::string_view message);

// Asks the logger, while it is still there, whether warnings that come after it has gone are wanted on
// sys.stderr. For atexit. REQUIRES: the GIL.
void PrepareLogForExit();

// Hands over what is queued. What a handler raises is reported as unraisable. REQUIRES: the GIL, no Python
// error pending.
inline void EmitLog() {
  if (log_is_waiting.load(std::memory_order_relaxed)) [[unlikely]]
    EmitWaitingLog();
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_LOG_H_
