// traffic.h — counts the messages between a server and its clients in other processes.
//
// The cost is two additions per message, which carries many items.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_TRAFFIC_H_
#define REVERB_TRANSPORT_TRAFFIC_H_

#include <atomic>
#include <cstdint>

namespace reverb::internal {

class TrafficCounters {
 public:
  // What the server has received and sent. Bytes include data that is passed in shared memory.
  struct Totals {
    int64_t messages_in = 0;
    int64_t messages_out = 0;
    int64_t bytes_in = 0;
    int64_t bytes_out = 0;
    int64_t call_streams = 0;  // open connections that carry single calls
  };

  void CountIn(uint64_t bytes) { in_.Count(bytes); }
  void CountOut(uint64_t bytes) { out_.Count(bytes); }
  void AddCallStreams(int64_t count) { call_streams_.fetch_add(count, std::memory_order_relaxed); }

  Totals totals() const {
    return {.messages_in = in_.messages.load(std::memory_order_relaxed),
            .messages_out = out_.messages.load(std::memory_order_relaxed),
            .bytes_in = in_.bytes.load(std::memory_order_relaxed),
            .bytes_out = out_.bytes.load(std::memory_order_relaxed),
            .call_streams = call_streams_.load(std::memory_order_relaxed)};
  }

 private:
  // Different threads count the directions.
  struct alignas(64) Direction {
    std::atomic<int64_t> messages{0};
    std::atomic<int64_t> bytes{0};
    void Count(uint64_t size) {
      messages.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
    }
  };
  Direction in_;
  Direction out_;
  std::atomic<int64_t> call_streams_{0};
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_TRAFFIC_H_
