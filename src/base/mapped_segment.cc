#include "base/mapped_segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace reverb::internal {
namespace {

Status BadSegment(const std::string& what) {
  return Status::InvalidArgument("shared memory: the descriptor of a segment " + what);
}

}  // namespace

Result<std::shared_ptr<const MappedSegment>> MappedSegment::Map(int descriptor, uint64_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes) {
    return Status::InvalidArgument("shared memory: a segment has 1 to " + std::to_string(kMaxBytes) +
                                   " bytes, but one of " + std::to_string(bytes) + " was announced");
  }
  // Seals exist on memfds only. Accessing a hole in a memfd of huge pages faults if none is free, therefore
  // these are refused too: they are of another file system.
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return BadSegment("is not a memfd");
  if ((seals & F_SEAL_SHRINK) == 0) return BadSegment("is not sealed against shrinking (F_SEAL_SHRINK)");
  struct statfs file_system {};
  if (::fstatfs(descriptor, &file_system) != 0 || file_system.f_type != TMPFS_MAGIC) {
    return BadSegment("is not a memfd of ordinary pages");
  }
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return BadSegment(std::string("is unusable: ") + std::strerror(errno));
  if (static_cast<uint64_t>(info.st_size) != bytes) {
    return BadSegment("has " + std::to_string(info.st_size) + " bytes, but " + std::to_string(bytes) +
                      " were announced");
  }
  // Private, for MakePrivate(); pages that are only read are those of the other process.
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (memory == MAP_FAILED) {
    return Status::ResourceExhausted("shared memory: mapping a segment of " + std::to_string(bytes) +
                                     " bytes of another process: " + std::strerror(errno));
  }
  return std::shared_ptr<const MappedSegment>(
      new MappedSegment(std::span(static_cast<const uint8_t*>(memory), bytes)));
}

MappedSegment::~MappedSegment() { (void)::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size()); }

namespace {

// Writes a byte of a page, which makes the kernel copy the page. Others may read the byte meanwhile, which does not change:
// ThreadSanitizer would report it.
__attribute__((noinline, no_sanitize("thread"))) void TouchPage(uint8_t* page) {
  auto* const byte = reinterpret_cast<volatile uint8_t*>(page);
  __atomic_store_n(byte, __atomic_load_n(byte, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

}  // namespace

bool MappedSegment::MakePrivate(std::span<const uint8_t> bytes) const {
  if (bytes.empty() || !Contains(bytes)) return true;
  static const auto kPageBytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(bytes.data() - bytes_.data()) / kPageBytes * kPageBytes;
  const size_t end = static_cast<size_t>(bytes.data() + bytes.size() - bytes_.data());
  auto* const memory = const_cast<uint8_t*>(bytes_.data());
  MutexLock lock(&private_mu_);
  if (::mprotect(memory + begin, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  for (size_t at = begin; at < end; at += kPageBytes) TouchPage(memory + at);
  return ::mprotect(memory + begin, end - begin, PROT_READ) == 0;
}

Result<std::span<const uint8_t>> MappedSegment::Range(uint64_t offset, uint64_t length) const {
  if (offset > bytes_.size() || length > bytes_.size() - offset) {
    return Status::InvalidArgument("shared memory: " + std::to_string(length) + " bytes from offset " +
                                   std::to_string(offset) + " on are not all in a segment of " +
                                   std::to_string(bytes_.size()) + " bytes");
  }
  return bytes_.subspan(offset, length);
}

}  // namespace reverb::internal
