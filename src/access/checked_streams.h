// checked_streams.h — the streams of a client that has a token: sessions and peers that check tables, keep to the token's
// limits, and end with the token.
//
// Threads: like any session and peer.
#ifndef REVERB_ACCESS_CHECKED_STREAMS_H_
#define REVERB_ACCESS_CHECKED_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "access/access_control.h"
#include "transport/transport.h"

namespace reverb::internal {

// Open a session of `handler` for a token that has the right to. `received_bytes` counts the data that a stream has
// received; it is reset with each message.
Result<std::shared_ptr<InsertSession>> OpenCheckedInsert(
    const std::shared_ptr<AccessControl>& control, RequestHandler* handler,
    std::shared_ptr<const AccessToken> token, const Hello& hello, std::shared_ptr<InsertPeer> peer,
    std::shared_ptr<std::atomic<uint64_t>> received_bytes);
Result<std::shared_ptr<SampleSession>> OpenCheckedSample(const std::shared_ptr<AccessControl>& control,
                                                         RequestHandler* handler,
                                                         std::shared_ptr<const AccessToken> token,
                                                         const Hello& hello,
                                                         std::shared_ptr<SamplePeer> peer);

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_CHECKED_STREAMS_H_
