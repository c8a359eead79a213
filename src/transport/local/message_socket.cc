#include "transport/local/message_socket.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/duration_text.h"
#include "base/fork.h"

namespace reverb::internal {
namespace {

// Returns wait this long for a message to travel with.
constexpr Duration kReturnDelay = std::chrono::milliseconds(5);
// Unless there are this many.
constexpr size_t kMaxPendingReturns = 64;

// Orders earlier reads before later ones.
void OrderReads() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not support fences. The bytes come from another mapping, which it does not relate.
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace

// Keeps a received message.
class MessageSocket::Keeper final : public BufferOwner {
 public:
  Keeper(std::shared_ptr<MessageSocket> socket, uint64_t number, Buffer inline_bytes, LocalMessage message)
      : socket_(std::move(socket)),
        number_(number),
        inline_bytes_(std::move(inline_bytes)),
        message_(std::move(message)) {
    MutexLock lock(&socket_->received_mu_);
    socket_->received_.emplace(number_, this);
    socket_->received_pinned_bytes_ += message_.referenced_bytes;
  }

  // Copies the pages of the sender's memory that the message refers to, at their addresses. Returns false if the
  // system has no memory left.
  bool MakePrivate() {
    // First: a message that is received from now on may need newer bytes of these pages.
    for (size_t i = 0; i < message_.segments.size(); ++i) {
      message_.segments[i]->Retire(message_.mappings[i].get());
    }
    for (const auto& mapping : message_.mappings) {
      for (const ByteSlice& slice : message_.slices) {
        if (!mapping->MakePrivate(slice)) return false;
      }
    }
    // The pages are the original ones if the memory was not reused before they were copied.
    is_private_.store(socket_->CheckLease().ok(), std::memory_order_release);
    return true;
  }
  Status CheckValid() const override {
    return is_private_.load(std::memory_order_acquire) ? Status::Ok() : socket_->CheckLease();
  }
  uint64_t referenced_bytes() const { return message_.referenced_bytes; }
  ByteSlices slices() const { return message_.slices; }

 private:
  ~Keeper() override {
    if (generation_ != ForkGeneration()) return;  // a copy in a child: the parent returns the message
    bool is_returned = false;
    {
      MutexLock lock(&socket_->received_mu_);
      is_returned = socket_->received_.erase(number_) == 0;
      if (!is_returned) socket_->received_pinned_bytes_ -= message_.referenced_bytes;
    }
    if (!is_returned) socket_->ReturnMessage(number_);
  }

  const std::shared_ptr<MessageSocket> socket_;
  const uint64_t number_;
  const uint64_t generation_ = ForkGeneration();
  const Buffer inline_bytes_;
  const LocalMessage message_;
  std::atomic<bool> is_private_{false};
};

// --- Sending --------------------------------------------------------------------------------------

StreamSocket::Sent MessageSocket::SendAs(FrameKind kind, Method method, const WireMessage& message,
                                         std::shared_ptr<const void> keeper) {
  if (IsClosing()) return Send({}, /*notify=*/false);  // reports why
  OutgoingFrame frame = sent_.MakeMessage(message, std::move(keeper), kind, method);
  frame.head.insert(0, TakeReturns());
  const Sent sent = Send(std::move(frame), /*notify=*/true);
  if (sent == Sent::kClosed) sent_.Clear();
  return sent;
}

Status MessageSocket::CheckProgress(TimePoint now, Duration timeout) {
  if (IsStalled()) {
    return Status::DeadlineExceeded("it has taken nothing of what was sent to it for " +
                                    DurationText(timeout) + " (stalled_client_timeout)");
  }
  const std::optional<SentMessages::Oldest> oldest = sent_.oldest();
  if (!oldest || now - oldest->sent < timeout / 2) return Status::Ok();
  if (now - oldest->sent < timeout) {
    Send(MakeFrame(FrameKind::kReclaim, oldest->number), /*notify=*/false);
    return Status::Ok();
  }
  return Status::DeadlineExceeded("it has not returned memory that it was shown " +
                                  DurationText(now - oldest->sent) + " ago (stalled_client_timeout)");
}

// --- Receiving ------------------------------------------------------------------------------------

Status MessageSocket::Receive(IncomingFrame* frame, LocalMessage* message, Buffer* keeper,
                              ByteSlices* slices) {
  const uint64_t number = frame->header.number;
  if (frame->header.has_body()) {
    REVERB_RETURN_IF_ERROR(segments_.TakeBody(frame));
    REVERB_RETURN_IF_ERROR(CheckLease());  // what was copied
    if (frame->references.empty()) ReturnMessage(number);
  }
  REVERB_RETURN_IF_ERROR(segments_.Resolve(frame, max_message_bytes_, message));
  *keeper = frame->keeper;
  *slices = message->slices;
  if (frame->references.empty()) return Status::Ok();
  bool copy = false;
  {
    MutexLock lock(&received_mu_);
    if (received_.contains(number)) {
      return Status::InvalidArgument("two messages have the number " + std::to_string(number));
    }
    copy = received_pinned_bytes_ + message->referenced_bytes > max_received_pinned_bytes_ / 2;
  }
  if (copy) {
    struct Both final : BufferOwner {
      Both(Buffer a, Buffer b) : inline_bytes(std::move(a)), copied(std::move(b)) {}
      const Buffer inline_bytes, copied;
    };
    *keeper = Buffer(new Both(*keeper, CopyReferenced(message)), nullptr, 0);
    ReturnMessage(number);
    return CheckLease();
  }
  auto* const kept = new Keeper(std::static_pointer_cast<MessageSocket>(shared_from_this()), number,
                                std::move(*keeper), std::move(*message));
  *slices = kept->slices();
  *keeper = Buffer(kept, nullptr, 0);
  return Status::Ok();
}

Buffer MessageSocket::CopyReferenced(LocalMessage* message) {
  uint8_t* out = nullptr;
  Buffer copy = Buffer::Allocate(message->referenced_bytes, &out);
  for (ByteSlice& slice : message->slices) {
    const bool is_mapped =
        std::ranges::any_of(message->mappings, [&](const auto& mapping) { return mapping->Contains(slice); });
    if (!is_mapped) continue;
    std::memcpy(out, slice.data(), slice.size());
    slice = {out, slice.size()};
    out += slice.size();
  }
  message->mappings.clear();
  message->segments.clear();
  return copy;
}

// --- Leases ---------------------------------------------------------------------------------------

void MessageSocket::GrantLease() {
  static std::atomic<uint64_t> last_value{static_cast<uint64_t>(RealClock()->WallNanos())};
  MutexLock lock(&lease_mu_);
  if (memory_ == nullptr || granted_ != nullptr) return;
  uint8_t* const block = memory_->Allocate(kMinReferenceBytes);
  if (block == nullptr) return;  // then nothing else is in shared memory
  const uint64_t value = last_value.fetch_add(2, std::memory_order_relaxed) | 1;
  reinterpret_cast<std::atomic<uint64_t>*>(block)->store(value);
  if (Send(sent_.MakeLease({block, kMinReferenceBytes}, value), /*notify=*/false) == Sent::kClosed) {
    return memory_->Free(block, kMinReferenceBytes);
  }
  granted_ = block;
}

void MessageSocket::ReleaseSent() {
  {
    MutexLock lock(&lease_mu_);
    if (uint8_t* const block = std::exchange(granted_, nullptr)) {
      // Later writes to the memory do not come before this.
      (void)reinterpret_cast<std::atomic<uint64_t>*>(block)->exchange(0);
      memory_->Free(block, kMinReferenceBytes);
    }
  }
  sent_.Clear();
}

Status MessageSocket::TakeLease(IncomingFrame* frame) {
  if (lease_ != nullptr) return Status::InvalidArgument("a lease was granted twice");
  lease_value_ = frame->header.number;
  return segments_.ResolveLease(frame, &lease_mapping_, &lease_);
}

Status MessageSocket::CheckLease() const {
  if (lease_ == nullptr) return Status::Ok();
  OrderReads();  // the bytes were read before
  if (lease_->load(std::memory_order_relaxed) == lease_value_) return Status::Ok();
  return Status::Unavailable(
      "the server has taken back the memory of this sample: it has disconnected this client, which had not "
      "returned it in time or has not run for a while; take another sample, or raise the server's "
      "stalled_client_timeout");
}

// --- Returns --------------------------------------------------------------------------------------

Status MessageSocket::HandleMemoryFrame(IncomingFrame* incoming) {
  const IncomingFrame& frame = *incoming;
  if (frame.header.kind == FrameKind::kLease) return TakeLease(incoming);
  if (frame.header.kind == FrameKind::kReclaim) {
    Reclaim(frame.header.number);
    return Status::Ok();
  }
  if (frame.header.kind != FrameKind::kReturn) {
    return Status::InvalidArgument("a frame of kind " + std::to_string(static_cast<int>(frame.header.kind)) +
                                   " is not expected here");
  }
  std::vector<uint64_t> numbers(frame.inline_bytes.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), frame.inline_bytes.data(), numbers.size() * sizeof(uint64_t));
  return sent_.Return(numbers);
}

void MessageSocket::ReturnMessage(uint64_t number) {
  bool send = false;
  {
    MutexLock lock(&returns_mu_);
    returns_.push_back(number);
    send = returns_.size() >= kMaxPendingReturns;
    if (!send && std::exchange(has_timer_, true)) return;
  }
  if (send) return SendReturns();
  RealClock()->CallAt(RealClock()->Now() + kReturnDelay,
                      [weak = std::weak_ptr<StreamSocket>(shared_from_this())] {
                        if (const auto socket = std::static_pointer_cast<MessageSocket>(weak.lock())) {
                          socket->SendReturns();
                        }
                      });
}

std::string MessageSocket::TakeReturns() {
  std::vector<uint64_t> numbers;
  {
    MutexLock lock(&returns_mu_);
    numbers.swap(returns_);
  }
  if (numbers.empty()) return {};
  FrameHeader header;
  header.kind = FrameKind::kReturn;
  header.inline_bytes = numbers.size() * sizeof(uint64_t);
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame.append(reinterpret_cast<const char*>(numbers.data()), header.inline_bytes);
  return frame;
}

void MessageSocket::SendReturns() {
  {
    MutexLock lock(&returns_mu_);
    has_timer_ = false;
  }
  OutgoingFrame frame;
  frame.head = TakeReturns();
  if (!frame.head.empty()) Send(std::move(frame), /*notify=*/false);
}

void MessageSocket::Reclaim(uint64_t number) {
  std::vector<uint64_t> returned;
  {
    // The lock keeps the messages from being destroyed.
    MutexLock lock(&received_mu_);
    while (!received_.empty() && received_.begin()->first <= number) {
      Keeper* const keeper = received_.begin()->second;
      if (!keeper->MakePrivate()) break;  // the sender disconnects this client if it must
      received_pinned_bytes_ -= keeper->referenced_bytes();
      returned.push_back(received_.begin()->first);
      received_.erase(received_.begin());
    }
  }
  for (const uint64_t each : returned) ReturnMessage(each);
  if (!returned.empty()) SendReturns();
}

}  // namespace reverb::internal
