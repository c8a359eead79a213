// table_internal.h — how the parts of ConcurrentTable (table*.cc) take its lock.
#ifndef REVERB_CORE_TABLE_INTERNAL_H_
#define REVERB_CORE_TABLE_INTERNAL_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/mutex.h"
#include "core/operation.h"
#include "core/table.h"

namespace reverb::internal {

// Returns whether a waiting thread may occupy a processor for some microseconds. With few of them it would take the
// time from the thread that it waits for.
bool HasManyProcessors();

// Provides this thread's Round, whose vectors keep their memory from call to call. Callbacks may call tables
// again; a nested call gets its own Round, and so does a call by a static object that is destroyed after the
// thread's Round.
class ConcurrentTable::ScopedRound {
 public:
  ScopedRound() {
    static thread_local bool is_gone = false;  // trivial, so it outlives the Round
    struct ThreadsRound : Round {
      ~ThreadsRound() { is_gone = true; }
    };
    static thread_local ThreadsRound mine;
    if (!is_gone && !mine.in_use) {
      round_ = &mine;
    } else {
      own_ = std::make_unique<Round>();
      round_ = own_.get();
    }
    round_->in_use = true;
  }
  ~ScopedRound() {
    // FinishRound() has emptied it. Memory for an unusually large call is not kept.
    constexpr size_t kKeep = 4096;
    if (round_->effects.released.capacity() > kKeep) round_->effects.released = {};
    round_->in_use = false;
  }
  Round* get() { return round_; }
  Round* operator->() { return round_; }

 private:
  std::unique_ptr<Round> own_;
  Round* round_;
};

template <typename Body>
void ConcurrentTable::WithLock(Body body) {
  ScopedRound round;
  mu_.Lock();
  if (pushed_.load(std::memory_order_relaxed) != nullptr) RunHandedOver(round.get());
  body(round.get());
  FinishRound(round.get());
}

// Holds the lock to read the state. Runs the operations that were handed over meanwhile afterwards: no
// caller waits for the asynchronous ones.
class SCOPED_CAPABILITY ConcurrentTable::ReadLock {
 public:
  explicit ReadLock(ConcurrentTable* table) ACQUIRE(table->mu_) : table_(table) {
    if (table_->has_max_age_.load(std::memory_order_relaxed)) {
      for (bool has_more = true; has_more;) {
        table_->WithLock([&](Round* round) {
          table_->mu_.AssertHeld();
          has_more = table_->RemoveAged(round, kMaxRemovals);
        });
      }
    }
    table_->mu_.Lock();
  }
  ~ReadLock() RELEASE() {
    table_->mu_.Unlock();
    Operation* expected = nullptr;  // see FinishRound()
    if (!table_->pushed_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) {
      table_->WithLock([](Round*) {});
    }
  }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  ConcurrentTable* const table_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_INTERNAL_H_
