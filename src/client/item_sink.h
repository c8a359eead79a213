// item_sink.h — the destination of a writer's completed items.
//
// Above it, single-threaded: columns become chunks, chunks and slices become items (src/client/*writer*).
// Below it: numbering, windows, streams, reconnection (insert_pipeline.h).
#ifndef REVERB_CLIENT_ITEM_SINK_H_
#define REVERB_CLIENT_ITEM_SINK_H_

#include <cstdint>
#include <span>
#include <utility>

#include "base/payload_source.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "tensor/item.h"

namespace reverb::internal {

// Threads: called by one writer at a time.
class ItemSink {
 public:
  virtual ~ItemSink() = default;

  // Adds the item; never blocks. Items arrive in the order of the calls. Fails with status().
  virtual Status Add(Item item) = 0;
  // The same for several items, which it moves from; sends them together where it can.
  virtual Status AddAll(std::span<Item> items) {
    for (Item& item : items) REVERB_RETURN_IF_ERROR(Add(std::move(item)));
    return Status::Ok();
  }
  // No later item will refer to this chunk.
  virtual void Forget(uint64_t chunk_id) = 0;

  // Items that were added and are not confirmed yet, and the bytes of their chunks.
  virtual int64_t pending_items() const = 0;
  // Returns whether the bytes of unconfirmed items fill the window: the writer should WaitForRoom().
  virtual bool is_full() const = 0;
  // Returns whether the next Add() may delay its caller for a moment, or is_full().
  virtual bool may_wait() const { return is_full(); }
  virtual Status WaitForRoom(const WaitOptions& wait) = 0;
  // The largest item that the server accepts (CheckItemSize), as far as known.
  virtual uint64_t max_item_bytes() const { return UINT64_MAX; }
  // Waits until at most `at_most` items are pending. DEADLINE_EXCEEDED starts with "Timeout exceeded" and
  // names what the wait is for; sending continues.
  virtual Status AwaitPending(int64_t at_most, const WaitOptions& wait) = 0;

  // Returns where the payloads of chunks should be, so that they can be sent cheaply: memory that the server can
  // read. Null for the private memory of the chunks.
  virtual PayloadSource* payload_source() const { return nullptr; }

  // Returns OK, or the error that made the sink unusable for good, such as an item that the server rejected.
  virtual Status status() const = 0;
  // Discards unconfirmed items. Idempotent.
  virtual void Close() = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ITEM_SINK_H_
