// payload.h — the data that benchmarks send: random values from a pool.
#ifndef REVERB_APPS_BENCH_PAYLOAD_H_
#define REVERB_APPS_BENCH_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace reverb::bench {

// xorshift: cheap compared with copying even the smallest item.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u | 1) {}
  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

// 64 MB, slightly more than the last-level cache, of float32 from 0 to 1. Created once per process.
inline constexpr size_t kPoolBytes = size_t{64} << 20;
const uint8_t* Pool();

// Picks random slots of `size` bytes of the pool, aligned to cache lines.
class Picker {
 public:
  Picker(size_t size, uint64_t seed)
      : stride_((size + 63) / 64 * 64), slots_(kPoolBytes / stride_), pool_(Pool()), random_(seed) {}
  const uint8_t* operator()() { return pool_ + random_() % slots_ * stride_; }

 private:
  size_t stride_;
  size_t slots_;
  const uint8_t* pool_;
  Random random_;
};

// Memory aligned to cache lines, like arrays of numerical libraries; touched on creation.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : data_(static_cast<uint8_t*>(::operator new(size, kAlignment))), size_(size) {
    std::memset(data_.get(), 0, size);
  }
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(uint8_t* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_;
};

// Returns the number of items in one message of the limit: 64, or as many as reach 256 kB.
inline int64_t ItemsPerMessage(int64_t size) {
  constexpr int64_t kMessageBytes = int64_t{256} << 10;
  const int64_t fill = (kMessageBytes + size - 1) / size;
  return fill < 64 ? fill : 64;
}

// Returns `count` frames of 84 x 84 bytes like those of an arcade game: a static background, some moving
// objects.
inline constexpr int64_t kFrameSide = 84;
inline constexpr int64_t kFrameBytes = kFrameSide * kFrameSide;
std::vector<uint8_t> MakeFrames(int64_t count, uint64_t seed);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_PAYLOAD_H_
