// stream_poller.h — one wait of a thread that reads a stream itself.
//
// A wait that is over after one Poll(), as most are, costs nothing more. From the second on, the transport knows that the
// thread comes again.
//
// Threads: belongs to one thread.
#ifndef REVERB_TRANSPORT_STREAM_POLLER_H_
#define REVERB_TRANSPORT_STREAM_POLLER_H_

#include <memory>

#include "base/clock.h"

namespace reverb::internal {

// `Stream` is InsertStream or SampleStream.
template <typename Stream>
class StreamPoller {
 public:
  StreamPoller() = default;
  ~StreamPoller() { End(); }
  StreamPoller(const StreamPoller&) = delete;
  StreamPoller& operator=(const StreamPoller&) = delete;

  // See InsertStream::Poll(). The stream may be another one each time: that of a new connection.
  bool Poll(const std::shared_ptr<Stream>& stream, Duration most) {
    if (stream != last_) {
      End();
      last_ = stream;
    } else if (!has_begun_) {
      last_->BeginPolling();
      has_begun_ = true;
    }
    return last_->Poll(most);
  }

 private:
  void End() {
    if (has_begun_) last_->EndPolling();
    has_begun_ = false;
  }

  std::shared_ptr<Stream> last_;
  bool has_begun_ = false;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_STREAM_POLLER_H_
