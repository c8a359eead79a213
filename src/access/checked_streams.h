// checked_streams.h — the streams of a client that has a token or limits: sessions and peers that check tables, keep to
// the limits, and end with the token.
//
// Threads: like any session and peer.
#ifndef REVERB_ACCESS_CHECKED_STREAMS_H_
#define REVERB_ACCESS_CHECKED_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "access/access_control.h"
#include "access/usage.h"
#include "base/clock.h"
#include "transport/transport.h"

namespace reverb::internal {

// Who opens a stream.
struct StreamClient {
  std::shared_ptr<const AccessToken> token;  // that has the right to; null: a trusted client
  Usage usage;

  bool is_unrestricted() const { return token == nullptr && usage.empty(); }
};

// Open a session of `handler`. `received_bytes` counts the data that a stream has received; it is reset with each
// message.
Result<std::shared_ptr<InsertSession>> OpenCheckedInsert(
    const std::shared_ptr<AccessControl>& control, RequestHandler* handler, StreamClient client,
    const Hello& hello, std::shared_ptr<InsertPeer> peer,
    std::shared_ptr<std::atomic<uint64_t>> received_bytes);
Result<std::shared_ptr<SampleSession>> OpenCheckedSample(const std::shared_ptr<AccessControl>& control,
                                                         RequestHandler* handler, StreamClient client,
                                                         const Hello& hello,
                                                         std::shared_ptr<SamplePeer> peer);

// Calls `call` after a pause: now if there is none.
void CallAfter(Duration pause, std::function<void()> call);

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_CHECKED_STREAMS_H_
