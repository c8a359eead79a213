#include "storage/io_ring.h"

#include <linux/io_uring.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace reverb::internal {
namespace {

constexpr uint64_t kEventId = UINT64_MAX;

uint32_t LoadAcquire(const uint32_t* shared) {
  return std::atomic_ref(*const_cast<uint32_t*>(shared)).load(std::memory_order_acquire);
}
void StoreRelease(uint32_t* shared, uint32_t value) {
  std::atomic_ref(*shared).store(value, std::memory_order_release);
}

void* MapRing(int ring, size_t size, uint64_t offset) {
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                               static_cast<off_t>(offset));
  if (address == MAP_FAILED) return nullptr;
  (void)::madvise(address, size, MADV_DONTFORK);  // would keep the ring open in a child
  return address;
}

}  // namespace

std::unique_ptr<IoRing> IoRing::Create(uint32_t depth) {
  std::unique_ptr<IoRing> ring(new IoRing());
  return ring->SetUp(depth) == 0 ? std::move(ring) : nullptr;
}

int IoRing::SetUp(uint32_t depth) {
  io_uring_params params;
  std::memset(&params, 0, sizeof(params));
  // One entry more, for the event.
  ring_ = Descriptor(static_cast<int>(::syscall(SYS_io_uring_setup, depth + 1, &params)));
  if (!ring_.is_open()) return errno;
  // Kernels before 5.6 lack IORING_OP_READ, before 5.7 IORING_FEAT_FAST_POLL.
  if ((params.features & IORING_FEAT_FAST_POLL) == 0) return ENOSYS;
  submissions_.size = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
  completions_.size = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  entries_.size = params.sq_entries * sizeof(io_uring_sqe);
  submissions_.address = MapRing(ring_.get(), submissions_.size, IORING_OFF_SQ_RING);
  completions_.address = MapRing(ring_.get(), completions_.size, IORING_OFF_CQ_RING);
  entries_.address = MapRing(ring_.get(), entries_.size, IORING_OFF_SQES);
  if (submissions_.address == nullptr || completions_.address == nullptr || entries_.address == nullptr) {
    return ENOMEM;
  }
  auto* const submissions = static_cast<uint8_t*>(submissions_.address);
  submission_tail_ = reinterpret_cast<uint32_t*>(submissions + params.sq_off.tail);
  submission_mask_ = *reinterpret_cast<uint32_t*>(submissions + params.sq_off.ring_mask);
  submission_array_ = reinterpret_cast<uint32_t*>(submissions + params.sq_off.array);
  auto* const completions = static_cast<uint8_t*>(completions_.address);
  completion_head_ = reinterpret_cast<uint32_t*>(completions + params.cq_off.head);
  completion_tail_ = reinterpret_cast<uint32_t*>(completions + params.cq_off.tail);
  completion_mask_ = *reinterpret_cast<uint32_t*>(completions + params.cq_off.ring_mask);
  completion_entries_ = completions + params.cq_off.cqes;
  event_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  return event_.is_open() ? 0 : errno;
}

IoRing::~IoRing() {
  const bool has_mappings = ring_.is_open();  // not in a child created by fork()
  // Closing the ring ends the read of the event.
  ring_.Close();
  event_.Close();
  for (const Mapping& mapping : {submissions_, completions_, entries_}) {
    if (has_mappings && mapping.address != nullptr) ::munmap(mapping.address, mapping.size);
  }
}

void IoRing::Push(uint8_t opcode, int descriptor, uint64_t offset, void* memory, uint32_t size, uint64_t id) {
  const uint32_t tail = *submission_tail_;  // only this thread changes it
  const uint32_t index = tail & submission_mask_;
  io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_.address)[index];
  std::memset(&entry, 0, sizeof(entry));
  entry.opcode = opcode;
  entry.fd = descriptor;
  entry.off = offset;
  entry.addr = reinterpret_cast<uintptr_t>(memory);
  entry.len = size;
  entry.user_data = id;
  submission_array_[index] = index;
  StoreRelease(submission_tail_, tail + 1);
  ++unsubmitted_;
}

void IoRing::Add(int descriptor, uint64_t offset, std::span<uint8_t> out, uint64_t id) {
  Push(IORING_OP_READ, descriptor, offset, out.data(), static_cast<uint32_t>(out.size()), id);
}

int IoRing::Wait(std::span<Completion> out) {
  if (!is_event_armed_) {
    Push(IORING_OP_READ, event_.get(), 0, &event_value_, sizeof(event_value_), kEventId);
    is_event_armed_ = true;
  }
  while (true) {
    const auto submitted = static_cast<int>(
        ::syscall(SYS_io_uring_enter, ring_.get(), unsubmitted_, 1, IORING_ENTER_GETEVENTS, nullptr, 0));
    if (submitted >= 0) {
      unsubmitted_ -= static_cast<uint32_t>(submitted);
      if (unsubmitted_ > 0) continue;
      break;
    }
    // EAGAIN, EBUSY: the kernel lacks resources until reads have completed.
    if (errno == EINTR) continue;
    if ((errno == EAGAIN || errno == EBUSY) && LoadAcquire(completion_tail_) != *completion_head_) break;
    if (errno == EAGAIN || errno == EBUSY) {
      ::usleep(1000);  // rare
      continue;
    }
    return -errno;
  }
  return static_cast<int>(Take(out));
}

size_t IoRing::Take(std::span<Completion> out) {
  uint32_t head = *completion_head_;  // only this thread changes it
  const uint32_t tail = LoadAcquire(completion_tail_);
  size_t count = 0;
  for (; head != tail && count < out.size(); ++head) {
    const io_uring_cqe& entry = static_cast<io_uring_cqe*>(completion_entries_)[head & completion_mask_];
    if (entry.user_data == kEventId) {
      is_event_armed_ = false;
    } else {
      out[count++] = {.id = entry.user_data, .result = entry.res};
    }
  }
  StoreRelease(completion_head_, head);
  return count;
}

void IoRing::Wake() {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));
}

}  // namespace reverb::internal
