// file_system.h — an interface to files that tests can replace to inject errors and crashes.
//
// After a power loss, only this is guaranteed: the bytes of a file up to its last Sync(), and the names in a
// directory as of its last SyncDir(). Publishing a file therefore takes: write, Sync(), Close(), Rename(),
// SyncDir() of the directory; a new directory is itself a name in its parent. Rename() within a directory is
// atomic: the name refers to the old file or to the new one.
//
// Errors: the message names operation, path and the system's reason; programs can act on the code
// (NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION if the disk or the quota is full; see
// FileError()). RESOURCE_EXHAUSTED is reserved for memory, since it becomes an IndexError in Python.
//
// Ownership: a FileSystem must outlive the files that it opened.
// Threads: a FileSystem and a RandomAccessFile may be used concurrently; a WritableFile by one thread at a
// time.
#ifndef REVERB_BASE_FILE_SYSTEM_H_
#define REVERB_BASE_FILE_SYSTEM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "reverb/status.h"

namespace reverb::internal {

// A file that is appended to through a buffer. After an error, every later call returns the same error,
// because the contents of the file are unknown. The destructor discards buffered bytes and closes the file,
// unless Close() was called.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile() = default;

  virtual Status Append(std::span<const uint8_t> bytes) = 0;
  Status Append(std::string_view bytes) {
    return Append(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  }
  // Writes the buffer to the file: readers see it, and it survives the end of this process.
  virtual Status Flush() = 0;
  // Calls Flush(), then waits until the bytes survive a power loss.
  virtual Status Sync() = 0;
  // Calls Flush(), then closes the file without syncing it. A second call returns FAILED_PRECONDITION.
  virtual Status Close() = 0;
};

class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  virtual ~RandomAccessFile() = default;

  // Reads from `offset` on into `out`. Returns the number of bytes read, which is less than out.size() only
  // at the end of the file, and 0 past it.
  virtual Result<size_t> Read(uint64_t offset, std::span<uint8_t> out) const = 0;
  // The size at the time of opening.
  virtual uint64_t size() const = 0;
};

// A file of fixed size that is written and read in whole blocks, past the page cache where the file system
// supports that. Elsewhere a write waits until the system has written the data, so that it reports an error, and the
// cache keeps no copy. Not durable before FileSystem::SyncFile(). Threads: may be used concurrently, but
// not for overlapping ranges of which one is written.
class BlockFile {
 public:
  // Offsets, sizes and addresses of memory are multiples of this.
  static constexpr size_t kBlockBytes = 4096;

  BlockFile() = default;
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;
  virtual ~BlockFile() = default;

  virtual Status Write(uint64_t offset, std::span<const uint8_t> bytes) = 0;
  // Reads all of `out`; fails if the file ends before.
  virtual Status Read(uint64_t offset, std::span<uint8_t> out) const = 0;
  // Cuts the file to `size` bytes, which need not be whole blocks. REQUIRES: no read or write is in progress behind
  // that.
  virtual Status Truncate(uint64_t size) = 0;
  // Returns a descriptor for reads past the page cache that the caller submits itself; -1 = use Read().
  virtual int descriptor() const { return -1; }
  virtual const std::string& path() const = 0;
};

// A lock that is held until this object is destroyed, or this process ends. Processes that are forked from it do not hold
// the lock.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class OpenMode { kTruncate, kAppend };  // both create a missing file
  enum class Parents { kMustExist, kCreateMissing };

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path, OpenMode mode) = 0;
  // Returns FAILED_PRECONDITION for anything but a regular file, as does MapFile().
  virtual Result<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(const std::string& path) = 0;
  // Creates a file of `size` bytes, a multiple of BlockFile::kBlockBytes, and reserves their space. Returns
  // ALREADY_EXISTS if the name is taken.
  virtual Result<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path, uint64_t size) {
    (void)size;
    return Status(StatusCode::kUnimplemented, "cannot create \"" + path + "\": no block files here");
  }
  // Gives a file a second name. Returns ALREADY_EXISTS if that is taken, and other errors if the two folders are in
  // different file systems, or the file system has no links.
  virtual Status LinkFile(const std::string& /*from*/, const std::string& to) {
    return Status(StatusCode::kUnimplemented, "cannot link \"" + to + "\": no links here");
  }
  // Makes the content of a file durable, also what other objects wrote.
  virtual Status SyncFile(const std::string& path) {
    return Status(StatusCode::kUnimplemented, "cannot sync \"" + path + "\": not supported here");
  }
  // Maps the file's bytes without copying them. They stay valid as long as the Buffer or a slice of it
  // exists, even if the file is removed. The file must not be truncated: accessing bytes past its end kills
  // the process.
  virtual Result<Buffer> MapFile(const std::string& path) = 0;
  // Tells the system about part of a mapped file: that it will be read soon, or that it may leave this
  // process's memory, from which it is read again when needed. A hint: errors are ignored, and by default
  // nothing happens. `mapped` must be part of a Buffer from MapFile() of this file system.
  enum class MapAdvice { kNeededSoon, kNotNeeded };
  virtual void Advise(std::span<const uint8_t> mapped, MapAdvice advice) {
    (void)mapped;
    (void)advice;
  }

  // Returns the names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> ListDir(const std::string& path) = 0;
  // With kMustExist, returns ALREADY_EXISTS if the directory exists. With kCreateMissing, existing
  // directories are no error.
  virtual Status CreateDir(const std::string& path, Parents parents) = 0;
  virtual Status RemoveFile(const std::string& path) = 0;
  // Returns FAILED_PRECONDITION if the directory is not empty.
  virtual Status RemoveDir(const std::string& path) = 0;
  // Replaces a file, or an empty directory by a directory, at `to`.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status SyncDir(const std::string& path) = 0;

  // Returns whether a file or directory with this name exists.
  virtual Result<bool> FileExists(const std::string& path) = 0;
  virtual Result<uint64_t> FileSize(const std::string& path) = 0;
  // Locks the file, waiting up to `timeout` while this or another process holds the lock. Creates the file if
  // it is missing and does not remove it. DEADLINE_EXCEEDED names the process that holds the lock, if known.
  // Returns UNIMPLEMENTED if the file system does not support locks.
  virtual Result<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     std::chrono::nanoseconds timeout) = 0;
  // Returns the bytes that this user may still write to the file system that contains `path`.
  virtual Result<uint64_t> GetFreeSpace(const std::string& path) = 0;
};

// Accesses the real file system. Lives as long as the process.
FileSystem* PosixFileSystem();

// Creates a file as NewBlockFile() of PosixFileSystem() does where the file system has no direct I/O. `sync` is
// fdatasync(), or what a test replaces it with.
Result<std::unique_ptr<BlockFile>> NewBufferedBlockFile(const std::string& path, uint64_t size,
                                                        int (*sync)(int));

// Returns the Status for a system call that failed with `error` (an errno): `cannot <operation> "<path>":
// <reason>`. For implementations.
Status FileError(std::string_view operation, std::string_view path, int error);

}  // namespace reverb::internal

#endif  // REVERB_BASE_FILE_SYSTEM_H_
