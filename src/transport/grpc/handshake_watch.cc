#include "transport/grpc/handshake_watch.h"

#include <chrono>

#include "base/clock.h"
#include "base/detached_thread.h"

namespace reverb::internal {
namespace {

constexpr Duration kLookInterval = std::chrono::seconds(1);

}  // namespace

uint64_t HandshakeWatch::Add(std::function<void(Status)> fail) {
  if (channel_->was_connected.load(std::memory_order_relaxed) || channel_->is_connected()) return 0;
  uint64_t id = 0;
  {
    MutexLock lock(&mu_);
    id = ++last_id_;
    calls_.emplace(id, std::move(fail));
    if (is_looking_) return id;
    is_looking_ = true;
  }
  LookLater();
  return id;
}

void HandshakeWatch::Remove(uint64_t id) {
  std::function<void(Status)> removed;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  removed = std::move(found->second);
  calls_.erase(found);
}

void HandshakeWatch::LookLater() {
  RealClock()->CallAt(RealClock()->Now() + kLookInterval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Look();
  });
}

void HandshakeWatch::Look() {
  const bool is_connected =
      channel_->was_connected.load(std::memory_order_relaxed) || channel_->is_connected();
  std::unordered_map<uint64_t, std::function<void(Status)>> connected;  // destroyed without the lock
  {
    MutexLock lock(&mu_);
    if (is_connected) connected.swap(calls_);
    if (calls_.empty()) {
      is_looking_ = false;
      return;
    }
  }
  if (channel_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
    return LookLater();
  }
  auto self = std::make_unique<std::shared_ptr<HandshakeWatch>>(shared_from_this());
  const auto probe = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<HandshakeWatch>> owned(
        static_cast<std::shared_ptr<HandshakeWatch>*>(argument));
    (*owned)->Probe();
    return nullptr;
  };
  if (!StartDetachedThread("rv-handshake", probe, self.get())) return LookLater();
  (void)self.release();
}

void HandshakeWatch::Probe() {
  const Status why = channel_->WhyNoHandshake();
  if (why.ok()) return LookLater();
  std::unordered_map<uint64_t, std::function<void(Status)>> failed;
  {
    MutexLock lock(&mu_);
    failed.swap(calls_);
    is_looking_ = false;
  }
  for (const auto& [id, fail] : failed) fail(why);
}

}  // namespace reverb::internal
