// client_stream.h — the streams of a client, each over a socket of its own.
//
// Events are called on the loops that all clients of the process share, or in Poll().
#ifndef REVERB_TRANSPORT_LOCAL_CLIENT_STREAM_H_
#define REVERB_TRANSPORT_LOCAL_CLIENT_STREAM_H_

#include <memory>

#include "reverb/status.h"
#include "transport/local/client_socket.h"
#include "transport/messages.h"
#include "transport/transport.h"

namespace reverb::internal {

// If the stream cannot be opened, OnClosed() is called before these return.
std::shared_ptr<InsertStream> OpenLocalInsert(std::shared_ptr<LocalTarget> target, const Hello& hello,
                                              std::shared_ptr<InsertEvents> events);
std::shared_ptr<SampleStream> OpenLocalSample(std::shared_ptr<LocalTarget> target, const Hello& hello,
                                              std::shared_ptr<SampleEvents> events);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_CLIENT_STREAM_H_
