// file_system.h — the seam to files, so that tests can fail and lose them at will.
//
// What survives a power loss is what this interface promises, no more: the bytes of a file up
// to its last Sync(), and the names in a directory as of its last SyncDir(). Publishing a file
// thus takes: write, Sync(), Close(), Rename(), SyncDir() of the directory; a new directory is
// itself a name in its parent. Rename() within a directory is atomic: old or new, never none.
//
// Errors: the message names operation, path and the system's reason; the code says what a
// program can do about it (NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION
// when the disk or the quota is full; see FileError()). RESOURCE_EXHAUSTED is left to memory: it
// becomes an IndexError in Python.
//
// Ownership: files do not need the FileSystem they came from to be idle, but to be alive.
// Threads: a FileSystem and a RandomAccessFile may be used concurrently; a WritableFile belongs
// to one thread at a time.
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

// Appended to through a buffer. After an error every later call returns the same error: what
// the file holds is not known any more. Destroying it without Close() gives up what was not
// flushed, and closes.
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
  // Hands the buffer to the system: readers see it, and it survives the end of this process.
  virtual Status Flush() = 0;
  // Flush(), then waits until the bytes survive a power loss.
  virtual Status Sync() = 0;
  // Flush(), then closes. Does not sync. A second call is FAILED_PRECONDITION.
  virtual Status Close() = 0;
};

class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  virtual ~RandomAccessFile() = default;

  // Fills `out` from `offset` on and returns how many bytes there were: fewer than out.size()
  // only at the end of the file, none past it.
  virtual Result<size_t> Read(uint64_t offset, std::span<uint8_t> out) const = 0;
  // When the file was opened.
  virtual uint64_t size() const = 0;
};

// Held until it is destroyed, or until its process and those that were forked from it meanwhile have ended.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class OpenMode { kTruncate, kAppend };  // both create what is not there
  enum class Parents { kMustExist, kCreateMissing };

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path, OpenMode mode) = 0;
  // FAILED_PRECONDITION for anything but a regular file, here and by MapFile().
  virtual Result<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(const std::string& path) = 0;
  // The file's bytes without a copy, for as long as the Buffer or a slice of it lives, also if
  // the file is removed meanwhile. The file must not be shortened: touching what is gone kills
  // the process.
  virtual Result<Buffer> MapFile(const std::string& path) = 0;

  // The names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> ListDir(const std::string& path) = 0;
  // With kMustExist, a directory that is there already is ALREADY_EXISTS; with kCreateMissing it
  // is fine, and so are those above it.
  virtual Status CreateDir(const std::string& path, Parents parents) = 0;
  virtual Status RemoveFile(const std::string& path) = 0;
  // FAILED_PRECONDITION unless it is empty.
  virtual Status RemoveDir(const std::string& path) = 0;
  // Replaces a file, or an empty directory by a directory, at `to`.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status SyncDir(const std::string& path) = 0;

  // Whether there is a file or a directory of this name.
  virtual Result<bool> FileExists(const std::string& path) = 0;
  virtual Result<uint64_t> FileSize(const std::string& path) = 0;
  // Locks the file, waiting up to `timeout` while this or another process holds the lock. Creates the file if
  // it is missing and leaves it there. DEADLINE_EXCEEDED names the process that holds the lock, if it is
  // known. UNIMPLEMENTED where the file system has no locks.
  virtual Result<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                                     std::chrono::nanoseconds timeout) = 0;
  // Bytes that this user may still write to the file system that holds `path`.
  virtual Result<uint64_t> GetFreeSpace(const std::string& path) = 0;
};

// The real files of this machine. Lives as long as the process.
FileSystem* PosixFileSystem();

// The Status of a system call that failed with `error` (an errno): `cannot <operation> "<path>":
// <reason>`. For implementations.
Status FileError(std::string_view operation, std::string_view path, int error);

}  // namespace reverb::internal

#endif  // REVERB_BASE_FILE_SYSTEM_H_
