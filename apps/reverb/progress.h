// progress.h — how far a long read has come, on a terminal.
//
// One line on standard error, written over again and again, and gone at the end. Where standard error is no
// terminal, and where it is over soon, nothing is shown.
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

  // Calls Show(). The line must outlive it.
  CheckpointProgressCallback callback();
  void Show(const CheckpointProgress& progress);
  // Before anything else is written there.
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
