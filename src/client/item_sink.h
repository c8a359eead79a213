// item_sink.h — where a writer puts items whose data is complete.
//
// Above it, single-threaded: columns become chunks, chunks and slices become items (src/client/writer*).
// Below it: numbering, windows, streams, reconnection (insert_pipeline.h).
#ifndef REVERB_CLIENT_ITEM_SINK_H_
#define REVERB_CLIENT_ITEM_SINK_H_

#include <cstdint>
#include <span>
#include <utility>

#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/item.h"

namespace reverb::internal {

// Threads: called by one writer at a time.
class ItemSink {
 public:
  virtual ~ItemSink() = default;

  // Takes the item; never blocks. Items arrive in this order. Fails with what made the sink unusable.
  virtual Status Add(Item item) = 0;
  // The same for several, which it moves away; where it can, they travel together.
  virtual Status AddAll(std::span<Item> items) {
    for (Item& item : items) REVERB_RETURN_IF_ERROR(Add(std::move(item)));
    return Status::Ok();
  }
  // No later item will refer to this chunk.
  virtual void Forget(uint64_t chunk_id) = 0;

  // Items that were added and are not confirmed yet, and the bytes of their chunks.
  virtual int64_t pending_items() const = 0;
  // Whether the bytes of unconfirmed items have reached the window: the writer should WaitForRoom().
  virtual bool is_full() const = 0;
  // Whether the next Add() may hold its caller back for a moment, or is_full().
  virtual bool may_wait() const { return is_full(); }
  virtual Status WaitForRoom(const WaitOptions& wait) = 0;
  // The largest item that the server accepts (CheckItemSize), as far as it is known.
  virtual uint64_t max_item_bytes() const { return UINT64_MAX; }
  // Until at most `at_most` items are pending. DEADLINE_EXCEEDED starts with "Timeout exceeded" and says
  // what is being waited for; sending goes on.
  virtual Status AwaitPending(int64_t at_most, const WaitOptions& wait) = 0;

  // OK, or what made the sink unusable for good. An item that the server rejected does.
  virtual Status status() const = 0;
  // Gives up what is not confirmed. Idempotent.
  virtual void Close() = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ITEM_SINK_H_
