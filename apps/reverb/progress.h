// progress.h — shows the progress of a long read on a terminal.
//
// Updates one line on standard error and removes it at the end. Shows nothing if standard error is not a
// terminal, or if the read ends soon.
#ifndef REVERB_APPS_REVERB_PROGRESS_H_
#define REVERB_APPS_REVERB_PROGRESS_H_

#include <chrono>
#include <string>

#include "reverb/checkpoint.h"

namespace reverb::program {

class ProgressLine {
 public:
  // `verb`: "loading", "checking".
  explicit ProgressLine(std::string verb);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Returns a callback that calls Show(). The ProgressLine must outlive it.
  CheckpointProgressCallback callback();
  void Show(const CheckpointProgress& progress);
  // Removes the line. Call before other output to standard error.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::string verb_;
  const bool is_on_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  bool is_visible_ = false;
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_PROGRESS_H_
