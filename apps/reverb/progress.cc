#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

constexpr std::chrono::milliseconds kFirst(300);
constexpr std::chrono::milliseconds kEvery(100);

}  // namespace

ProgressLine::ProgressLine(std::string verb) : verb_(std::move(verb)), is_on_(IsTerminal(STDERR_FILENO)) {}

CheckpointProgressCallback ProgressLine::callback() {
  if (!is_on_) return {};
  return [this](const CheckpointProgress& progress) { Show(progress); };
}

void ProgressLine::Show(const CheckpointProgress& progress) {
  const Clock::time_point now = Clock::now();
  if (!is_on_ || now - start_ < kFirst || (is_visible_ && now - shown_ < kEvery)) return;
  shown_ = now;
  is_visible_ = true;
  const auto done = static_cast<double>(progress.bytes_done);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::string line = verb_ + " " + ShowBytes(static_cast<int64_t>(progress.bytes_done));
  if (progress.bytes_total > 0) {
    const double share = std::min(1.0, done / static_cast<double>(progress.bytes_total));
    line +=
        " of " + ShowBytes(static_cast<int64_t>(progress.bytes_total)) + Format(" (%.0f %%)", share * 100);
    if (share > 0.01) {
      line += ", " +
              ShowDuration(std::chrono::seconds(static_cast<int64_t>(seconds / share * (1 - share) + 1))) +
              " to go";
    }
  }
  line += ", " + ShowBytes(static_cast<int64_t>(done / seconds)) + "/s";
  std::fprintf(stderr, "\r\x1b[K%s",
               CutToWidth(line, static_cast<size_t>(TerminalSize().columns) - 1).c_str());
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (!std::exchange(is_visible_, false)) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace reverb::program
