#include "base/gate.h"

#include <cassert>

namespace reverb::internal {

Gate::~Gate() {
  // Taking the lock also lets the last Leave() or Close() finish with the mutex.
  MutexLock lock(&mu_);
  assert(inside_ == 0 && "a gate was destroyed with somebody inside");
  assert(closers_ == 0 && "a gate was destroyed while somebody waits in Close()");
}

std::optional<Gate::Pass> Gate::Enter() {
  MutexLock lock(&mu_);
  if (closed_) return std::nullopt;
  ++inside_;
  return Pass(this);
}

void Gate::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  ++closers_;
  while (inside_ > 0) empty_.Wait(&mu_);
  --closers_;
}

bool Gate::CloseFor(Duration timeout) {
  // Far enough away to be for ever, near enough that adding it to the time of day cannot overflow.
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  if (timeout > kLongest) timeout = kLongest;
  const auto deadline = std::chrono::steady_clock::now() + timeout;

  MutexLock lock(&mu_);
  closed_ = true;
  ++closers_;
  while (inside_ > 0) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration(0)) break;
    empty_.WaitFor(&mu_, left);
  }
  --closers_;
  return inside_ == 0;
}

bool Gate::is_closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

int64_t Gate::inside() const {
  MutexLock lock(&mu_);
  return inside_;
}

void Gate::Leave() {
  MutexLock lock(&mu_);
  assert(inside_ > 0);
  // Notified under the lock: once it is released, a Close() may return and the gate be gone.
  if (--inside_ == 0 && closers_ > 0) empty_.NotifyAll();
}

}  // namespace reverb::internal
