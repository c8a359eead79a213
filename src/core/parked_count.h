// parked_count.h — counts the bytes of chunks as parked, for as long as it lives: of data that a table has removed and a
// snapshot still shows.
//
// To be destroyed before the chunks: the accounts may belong to another store once the last chunk is gone.
//
// Threads: one at a time.
#ifndef REVERB_CORE_PARKED_COUNT_H_
#define REVERB_CORE_PARKED_COUNT_H_

#include <cstdint>
#include <utility>

#include "tensor/chunk.h"

namespace reverb::internal {

class ParkedCount {
 public:
  ParkedCount() = default;
  ParkedCount(ParkedCount&& other) noexcept
      : ledger_(other.ledger_), bytes_(std::exchange(other.bytes_, 0)) {}
  ParkedCount& operator=(ParkedCount&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ParkedCount() { Clear(); }

  // `ledger`: that of the chunks, which are of one store.
  void Add(ChunkLedger* ledger, int64_t bytes) {
    if (bytes == 0) return;
    ledger_ = ledger;
    ledger_->CountParked(bytes);
    bytes_ += bytes;
  }
  // Takes over what the other one counts.
  void Add(ParkedCount&& other) {
    if (other.bytes_ != 0) ledger_ = other.ledger_;
    bytes_ += std::exchange(other.bytes_, 0);
  }
  void Clear() {
    if (bytes_ != 0) ledger_->CountParked(-std::exchange(bytes_, 0));
  }

 private:
  ChunkLedger* ledger_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_PARKED_COUNT_H_
