// rows_socket.h — a client's socket for operations on row tables: single calls whose data is in shared memory.
//
// A call is sent and received on the caller's thread. What a client writes stays in its memory until the server has
// copied it. The rows of a reply refer to the server's memory, under the rules of message_socket.h, until they are
// destroyed; the socket can carry other calls meanwhile.
//
// Threads: a RowsSocket belongs to one thread at a time. Its replies may be used and destroyed by others.
#ifndef REVERB_TRANSPORT_LOCAL_ROWS_SOCKET_H_
#define REVERB_TRANSPORT_LOCAL_ROWS_SOCKET_H_

#include <memory>

#include "reverb/status.h"
#include "transport/local/client_socket.h"
#include "transport/messages.h"

namespace reverb::internal {

class RowsStream;

class RowsSocket {
 public:
  // Connects and greets.
  static Result<std::unique_ptr<RowsSocket>> Open(const std::shared_ptr<LocalTarget>& target,
                                                  const CallSocket::OnWait& on_wait);
  // Closes the socket. Rows that refer to the server's memory stay valid.
  ~RowsSocket();
  RowsSocket(const RowsSocket&) = delete;
  RowsSocket& operator=(const RowsSocket&) = delete;

  // Returns false if the server has closed the socket, or has sent what nobody has asked for, or may have: the loop reads.
  bool IsUsable();
  Result<RowsReply> Call(const RowsRequest& request, const CallSocket::OnWait& on_wait);
  // Returns whether another call may follow.
  bool is_reusable() const { return is_reusable_; }

 private:
  explicit RowsSocket(std::shared_ptr<RowsStream> stream);

  const std::shared_ptr<RowsStream> stream_;
  bool is_reusable_ = true;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_ROWS_SOCKET_H_
