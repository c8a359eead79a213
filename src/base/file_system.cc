#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "base/descriptor.h"

namespace reverb::internal {
namespace {

// Larger appends bypass the buffer.
constexpr size_t kWriteBufferBytes = 64 * 1024;
// Starts write-back to disk after this many bytes.
constexpr uint64_t kWriteOutBytes = uint64_t{4} << 20;
// flock() has no timeout, so LockFile() polls a lock that is held at this interval.
constexpr std::chrono::nanoseconds kLockRetryInterval = std::chrono::milliseconds(10);
constexpr int kNewFile = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;

// strerror_r() exists in two variants, distinguished by their return types.
[[maybe_unused]] const char* ErrorText(int result, const char* buffer) {
  return result == 0 ? buffer : "unknown error";
}
[[maybe_unused]] const char* ErrorText(const char* result, const char*) { return result; }

// Repeats a system call that a signal interrupted.
template <typename Call>
auto Retry(Call call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() { static_cast<void>(Close()); }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Returns the descriptor, which a child created by fork() then loses.
  Descriptor Release() { return Descriptor(std::exchange(fd_, -1)); }
  // Returns 0 or an errno. Does not retry on EINTR: Linux has released the descriptor by then, and another
  // thread may have reused it.
  int Close() {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0 || ::close(fd) == 0 || errno == EINTR) return 0;
    return errno;
  }

 private:
  int fd_;
};

Result<Fd> Open(const std::string& path, int flags) {
  const int fd = Retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) return FileError("open", path, errno);
  return Fd(fd);
}

struct OpenedFile {
  Fd fd;
  uint64_t size;
};

// Opens a regular file for reading and rejects anything else: opening a FIFO waits for its other end, and a
// device may have no end. O_NONBLOCK has no effect on regular files and prevents that wait.
Result<OpenedFile> OpenRegularFile(const std::string& path) {
  REVERB_ASSIGN_OR_RETURN(Fd fd, Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return FileError("stat", path, errno);
  if (S_ISDIR(info.st_mode)) return FileError("open", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return Status::FailedPrecondition("cannot open \"" + path + "\": it is a " +
                                      (S_ISFIFO(info.st_mode) ? "FIFO" : "device") +
                                      "; only regular files are read");
  }
  return OpenedFile{std::move(fd), static_cast<uint64_t>(info.st_size)};
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Status Append(std::span<const uint8_t> bytes) override {
    REVERB_RETURN_IF_ERROR(CheckUsable("append to"));
    if (buffer_.size() + bytes.size() > kWriteBufferBytes) REVERB_RETURN_IF_ERROR(Flush());
    if (bytes.size() > kWriteBufferBytes) return Write(bytes);
    if (buffer_.capacity() == 0) buffer_.reserve(kWriteBufferBytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return Status::Ok();
  }

  Status Flush() override {
    REVERB_RETURN_IF_ERROR(CheckUsable("flush"));
    REVERB_RETURN_IF_ERROR(Write(buffer_));
    buffer_.clear();
    return Status::Ok();
  }

  Status Sync() override {
    REVERB_RETURN_IF_ERROR(Flush());
    // A failed sync is final: the kernel may have dropped the dirty pages, and a second sync would succeed.
    if (Retry([&] { return ::fdatasync(fd_.get()); }) != 0) return Fail("sync", errno);
    return Status::Ok();
  }

  Status Close() override {
    if (Status status = Flush(); !status.ok()) {
      static_cast<void>(fd_.Close());
      return status;
    }
    const int error = fd_.Close();
    return error == 0 ? Status::Ok() : Fail("close", error);
  }

 private:
  Status CheckUsable(const char* operation) const {
    if (!failed_.ok()) return failed_;
    if (fd_.is_open()) return Status::Ok();
    return Status::FailedPrecondition(std::string("cannot ") + operation + " \"" + path_ +
                                      "\": it was closed");
  }

  Status Write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = Retry([&] { return ::write(fd_.get(), bytes.data(), bytes.size()); });
      if (written < 0) return Fail("write", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      bytes_since_write_out_ += static_cast<uint64_t>(written);
    }
    if (bytes_since_write_out_ >= kWriteOutBytes) BeginWriteOut();
    return Status::Ok();
  }

  // Starts write-back, without waiting for it. Otherwise the system may keep all bytes in memory until
  // Sync(), which then waits for all of them. Errors surface in Sync().
  void BeginWriteOut() {
#if defined(SYNC_FILE_RANGE_WRITE)
    (void)::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
    bytes_since_write_out_ = 0;
  }

  Status Fail(const char* operation, int error) { return failed_ = FileError(operation, path_, error); }

  const std::string path_;
  Fd fd_;
  std::vector<uint8_t> buffer_;
  uint64_t bytes_since_write_out_ = 0;
  Status failed_;  // the first error
};

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, Fd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  Result<size_t> Read(uint64_t offset, std::span<uint8_t> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      // past the end of any file
      if (offset + done > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) break;
      const ssize_t got = Retry([&] {
        return ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      });
      if (got < 0) return FileError("read", path_, errno);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  uint64_t size() const override { return size_; }

 private:
  const std::string path_;
  const Fd fd_;
  const uint64_t size_;
};

class PosixBlockFile final : public BlockFile {
 public:
  // `sync`: fdatasync(), or what a test replaces it with; null with direct I/O.
  PosixBlockFile(std::string path, Descriptor fd, int (*sync)(int))
      : path_(std::move(path)), fd_(std::move(fd)), sync_(sync) {}
  ~PosixBlockFile() override { fd_.CloseFile(); }

  Status Write(uint64_t offset, std::span<const uint8_t> bytes) override {
    const uint64_t begin = offset;
    const size_t size = bytes.size();
    while (!bytes.empty()) {
      const ssize_t written =
          Retry([&] { return ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
      if (written < 0) return FileError("write", path_, errno);
      offset += static_cast<uint64_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return is_direct() ? Status::Ok() : WriteBack(begin, size);
  }

  Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    const uint64_t begin = offset;
    const size_t size = out.size();
    while (!out.empty()) {
      const ssize_t got =
          Retry([&] { return ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset)); });
      if (got < 0) return FileError("read", path_, errno);
      if (got == 0) {
        return Status::DataLoss("cannot read \"" + path_ + "\": it ends before byte " +
                                std::to_string(offset + out.size()));
      }
      offset += static_cast<uint64_t>(got);
      out = out.subspan(static_cast<size_t>(got));
    }
    if (!is_direct()) DropPages(begin, size);
    return Status::Ok();
  }

  Status Truncate(uint64_t size) override {
    if (Retry([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(size)); }) == 0) return Status::Ok();
    return FileError("truncate", path_, errno);
  }

  int descriptor() const override { return is_direct() ? fd_.get() : -1; }
  const std::string& path() const override { return path_; }

 private:
  bool is_direct() const { return sync_ == nullptr; }
  // Without direct I/O: writes the pages to the disk, and drops them, so that the page cache does not hold a second
  // copy of the data. An error of the disk, or a disk that is full, may show only here. Not sync_file_range(), which
  // does not report all of them.
  Status WriteBack(uint64_t offset, size_t size) const {
    if (Retry([&] { return sync_(fd_.get()); }) != 0) return FileError("write back", path_, errno);
    DropPages(offset, size);
    return Status::Ok();
  }
  void DropPages(uint64_t offset, size_t size) const {
    (void)::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                          POSIX_FADV_DONTNEED);
  }

  const std::string path_;
  Descriptor fd_;
  int (*const sync_)(int);
};

// Reserves the space of a new file and returns it. Removes the file if that fails.
Result<std::unique_ptr<BlockFile>> ReserveBlockFile(const std::string& path, uint64_t size, Descriptor fd,
                                                    int (*sync)(int)) {
  bool is_reserved = Retry([&] { return ::fallocate(fd.get(), 0, 0, static_cast<off_t>(size)); }) == 0;
  if (!is_reserved && errno == EOPNOTSUPP) {
    is_reserved = ::ftruncate(fd.get(), static_cast<off_t>(size)) == 0;
  }
  if (!is_reserved) {
    const int error = errno;
    (void)::unlink(path.c_str());
    return FileError("reserve space for", path, error);
  }
  return std::unique_ptr<BlockFile>(new PosixBlockFile(path, std::move(fd), sync));
}

class MappedFile final : public BufferOwner {
 public:
  MappedFile(void* address, size_t size) : address_(address), size_(size) {}

 private:
  ~MappedFile() override { ::munmap(address_, size_); }

  void* const address_;
  const size_t size_;
};

// Locks with flock(). The lock belongs to the open file description, so it also excludes other openings of
// the file in this process. A child that is forked while the lock is held closes its descriptor (base/descriptor.h),
// so that the lock ends with this process. The lock file contains our process ID for the error messages of others.
class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {
    // For error messages only, so failures do not matter.
    const std::string holder = std::to_string(::getpid()) + "\n";
    if (::ftruncate(fd_.get(), 0) == 0) (void)!::pwrite(fd_.get(), holder.data(), holder.size(), 0);
  }
  ~PosixFileLock() override {
    (void)!::ftruncate(fd_.get(), 0);
    ::flock(fd_.get(), LOCK_UN);
  }

  // Returns the process that has locked the file, if the file contains its ID.
  static std::optional<pid_t> ReadHolder(int fd) {
    char text[24];
    const ssize_t size = ::pread(fd, text, sizeof(text), 0);
    pid_t holder = 0;
    if (size <= 0 || std::from_chars(text, text + size, holder).ec != std::errc() || holder <= 0) {
      return std::nullopt;
    }
    return holder;
  }

 private:
  const Descriptor fd_;
};

Status LockTimeout(const std::string& path, int fd, std::chrono::nanoseconds timeout) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g s", std::chrono::duration<double>(timeout).count());
  std::string message = "cannot lock \"" + path + "\" within " + seconds + ": ";
  const std::optional<pid_t> holder = PosixFileLock::ReadHolder(fd);
  if (!holder) return Status::DeadlineExceeded(message + "another process holds the lock");
  message += "process " + std::to_string(*holder);
  if (::kill(*holder, 0) != 0 && errno == ESRCH) {
    message +=
        ", which is no longer running, has locked it; a process that it forked may still hold the lock";
  } else {
    message += " holds the lock";
  }
  return Status::DeadlineExceeded(std::move(message));
}

class PosixFileSystemImpl final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path, OpenMode mode) override {
    const int flags = O_WRONLY | O_CREAT | (mode == OpenMode::kTruncate ? O_TRUNC : O_APPEND);
    REVERB_ASSIGN_OR_RETURN(Fd fd, Open(path, flags));
    return std::unique_ptr<WritableFile>(new PosixWritableFile(path, std::move(fd)));
  }

  Result<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(const std::string& path) override {
    REVERB_ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path));
    return std::unique_ptr<RandomAccessFile>(new PosixRandomAccessFile(path, std::move(file.fd), file.size));
  }

  Result<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path, uint64_t size) override {
    const int descriptor = Retry([&] { return ::open(path.c_str(), kNewFile | O_DIRECT, 0666); });
    if (descriptor >= 0) return ReserveBlockFile(path, size, Descriptor(descriptor), /*sync=*/nullptr);
    if (errno != EINVAL) return FileError("create", path, errno);
    // The file system has no direct I/O. Some have created the file by then.
    (void)::unlink(path.c_str());
    return NewBufferedBlockFile(path, size, ::fdatasync);
  }

  Status LinkFile(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return Status::Ok();
    return FileError("link", to, errno);
  }

  Status SyncFile(const std::string& path) override {
    const Fd fd(Retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
    if (fd.get() < 0) return FileError("open", path, errno);
    if (Retry([&] { return ::fsync(fd.get()); }) != 0) return FileError("sync", path, errno);
    return Status::Ok();
  }

  Result<Buffer> MapFile(const std::string& path) override {
    REVERB_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
    const uint64_t size = file.size;
    if (size == 0) return Buffer();  // an empty file cannot be mapped
    if (size > std::numeric_limits<size_t>::max()) return FileError("map", path, EFBIG);
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd.get(), 0);
    if (address == MAP_FAILED) return FileError("map", path, errno);
    return Buffer(new MappedFile(address, size), static_cast<const uint8_t*>(address), size);
  }

  void Advise(std::span<const uint8_t> mapped, MapAdvice advice) override {
    if (mapped.empty()) return;
    static const auto kPageBytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(mapped.data()) & ~(kPageBytes - 1);
    const uintptr_t end = reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size();
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin,  // NOLINT: an address
                    advice == MapAdvice::kNeededSoon ? MADV_WILLNEED : MADV_DONTNEED);
  }

  Result<std::vector<std::string>> ListDir(const std::string& path) override {
    DIR* const opened = ::opendir(path.c_str());
    if (opened == nullptr) return FileError("list", path, errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opened, ::closedir);
    std::vector<std::string> names;
    while (true) {
      errno = 0;  // distinguishes the end from an error
      const dirent* const entry = ::readdir(dir.get());
      if (entry == nullptr) {
        if (errno != 0) return FileError("list", path, errno);
        break;
      }
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Status CreateDir(const std::string& path, Parents parents) override {
    if (::mkdir(path.c_str(), 0777) == 0) return Status::Ok();
    int error = errno;
    if (parents == Parents::kMustExist) return FileError("create directory", path, error);
    if (error == ENOENT) {
      // Finds the last component, ignoring trailing slashes, and its parent directory.
      const size_t end = path.find_last_not_of('/');
      const size_t slash = end == std::string::npos ? std::string::npos : path.find_last_of('/', end);
      if (slash == std::string::npos || slash == 0) return FileError("create directory", path, error);
      REVERB_RETURN_IF_ERROR(CreateDir(path.substr(0, slash), parents));
      if (::mkdir(path.c_str(), 0777) == 0) return Status::Ok();
      error = errno;
    }
    // Another process may have created it meanwhile, and some systems return EROFS or EISDIR for an existing
    // directory.
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return Status::Ok();
    return FileError("create directory", path, error);
  }

  Status RemoveFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return FileError("remove", path, errno);
    return Status::Ok();
  }

  Status RemoveDir(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return FileError("remove directory", path, errno);
    return Status::Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return Status::Ok();
    const int error = errno;
    return FileError("rename", from + "\" to \"" + to, error);
  }

  Status SyncDir(const std::string& path) override {
    REVERB_ASSIGN_OR_RETURN(Fd fd, Open(path, O_RDONLY | O_DIRECTORY));
    // EINVAL: this file system does not support it, so there is nothing to wait for.
    if (Retry([&] { return ::fsync(fd.get()); }) != 0 && errno != EINVAL) {
      return FileError("sync directory", path, errno);
    }
    return Status::Ok();
  }

  Result<bool> FileExists(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return FileError("stat", path, errno);
  }

  Result<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return FileError("stat", path, errno);
    if (S_ISDIR(info.st_mode)) return FileError("take the size of", path, EISDIR);
    return static_cast<uint64_t>(info.st_size);
  }

  Result<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                             std::chrono::nanoseconds timeout) override {
    REVERB_ASSIGN_OR_RETURN(Fd opened, Open(path, O_RDWR | O_CREAT));
    Descriptor fd = opened.Release();  // a child that is forked while this waits would share the lock
    const auto start = std::chrono::steady_clock::now();
    while (Retry([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      const int error = errno;
      if (error == EWOULDBLOCK) {
        const auto left = timeout - (std::chrono::steady_clock::now() - start);
        if (left <= left.zero()) return LockTimeout(path, fd.get(), timeout);
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kLockRetryInterval));
        continue;
      }
      const bool has_locks = error != ENOLCK && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL;
      Status status = FileError("lock", path, error);
      return has_locks ? status : Status(StatusCode::kUnimplemented, std::string(status.message()));
    }
    return std::unique_ptr<FileLock>(new PosixFileLock(std::move(fd)));
  }

  Result<uint64_t> GetFreeSpace(const std::string& path) override {
    struct statvfs info;
    if (Retry([&] { return ::statvfs(path.c_str(), &info); }) != 0) {
      return FileError("take the free space of", path, errno);
    }
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }
};

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return StatusCode::kInvalidArgument;
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case EBUSY:
    case EXDEV:
    case ENXIO:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return StatusCode::kFailedPrecondition;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return StatusCode::kUnavailable;
    case EIO:
    case ENODATA:                    // a sector that cannot be read
    case EILSEQ:                     // a checksum of the device
    case EBADMSG:                    // one of the file system
    case EUCLEAN:                    // the file system is damaged
      return StatusCode::kDataLoss;  // the medium failed; its contents cannot be trusted
    default:
      return StatusCode::kUnknown;
  }
}

// Returns advice for errors whose system message does not suggest a remedy.
const char* RemedyOf(int error) {
  switch (error) {
    case ENOSPC:
      return "; free space on that file system, or write to another one";
    case EDQUOT:
      return "; free space or raise the quota, or write to another file system";
    case EFBIG:
      return "; raise the limit on the size of files (ulimit -f), or write to another file system";
    default:
      return "";
  }
}

}  // namespace

FileSystem* PosixFileSystem() {
  static FileSystem* const file_system = new PosixFileSystemImpl();
  return file_system;
}

Result<std::unique_ptr<BlockFile>> NewBufferedBlockFile(const std::string& path, uint64_t size,
                                                        int (*sync)(int)) {
  const int descriptor = Retry([&] { return ::open(path.c_str(), kNewFile, 0666); });
  if (descriptor < 0) return FileError("create", path, errno);
  return ReserveBlockFile(path, size, Descriptor(descriptor), sync);
}

Status FileError(std::string_view operation, std::string_view path, int error) {
  char buffer[256] = "";
  std::string message = "cannot ";
  message.append(operation).append(" \"").append(path).append("\": ");
  message.append(ErrorText(::strerror_r(error, buffer, sizeof(buffer)), buffer)).append(RemedyOf(error));
  return Status(CodeOf(error), std::move(message));
}

}  // namespace reverb::internal
