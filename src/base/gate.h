// gate.h — counts who is inside, and lets an owner wait until nobody is.
//
// A session enters when it starts and leaves when its Pass dies. Close() turns newcomers
// away and returns when the last one has left, so that a destructor need not poll. To break
// waits of those inside first: CloseFor(0), wake them, Close().
//
// Ownership: a Pass refers to its gate, which must outlive it.
// Threads: all methods may be called concurrently. A thread that holds a Pass must not call
// Close(): it would wait for itself. Once Close() has returned the gate may be destroyed.
// Invariants: (1) a closed gate stays closed; (2) nobody enters a closed gate.
#ifndef REVERB_BASE_GATE_H_
#define REVERB_BASE_GATE_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

class Gate {
 public:
  // Being inside; leaves when destroyed.
  class [[nodiscard]] Pass {
   public:
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      Pass old(std::move(*this));
      gate_ = std::exchange(other.gate_, nullptr);
      return *this;
    }
    ~Pass() {
      if (gate_) gate_->Leave();
    }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) : gate_(gate) {}
    Gate* gate_;
  };

  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // REQUIRES: nobody is inside.
  ~Gate();

  // Nothing when the gate is closed.
  std::optional<Pass> Enter() EXCLUDES(mu_);

  // Closes the gate and waits until all have left. May be called again, and by several.
  void Close() EXCLUDES(mu_);
  // The same, waiting at most that long (real time); zero = look once. False when somebody is
  // still inside; the gate is closed all the same.
  bool CloseFor(Duration timeout) EXCLUDES(mu_);

  bool is_closed() const EXCLUDES(mu_);
  int64_t inside() const EXCLUDES(mu_);

 private:
  void Leave() EXCLUDES(mu_);

  mutable Mutex mu_;
  CondVar empty_;
  bool closed_ GUARDED_BY(mu_) = false;
  int64_t inside_ GUARDED_BY(mu_) = 0;
  // Threads in Close() or CloseFor(): leaving is free of a system call when nobody waits.
  int64_t closers_ GUARDED_BY(mu_) = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_GATE_H_
