// fake_file_system.h — files in memory that a test can lose and break.
//
// Models what file_system.h promises about a power loss, at its meanest. What is not covered by
// a Sync() of the file and a SyncDir() of every directory on the way to it may be lost, or not:
//   - each file keeps its bytes up to the last Sync() and then some first part of what was
//     flushed since; the last piece may be torn, or have its length but zeros in place of bytes;
//   - each name created, removed or renamed since its directory's SyncDir() did or did not make
//     it, each for itself, so also a later one without an earlier one. A rename is atomic.
// It also fails any operation on request, and can be full.
//
// Threads: all methods may be called concurrently. Files must not outlive it.
#ifndef REVERB_TESTS_TESTING_FAKE_FILE_SYSTEM_H_
#define REVERB_TESTS_TESTING_FAKE_FILE_SYSTEM_H_

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "reverb/status.h"

namespace reverb::test {

class FakeFileSystem final : public internal::FileSystem {
 public:
  // The seed with which a crash loses all that may be lost, and nothing is left to chance.
  static constexpr uint64_t kLoseAll = 0;

  // Which operations a fault counts. Writes: opening for writing, each call on a WritableFile, and
  // what changes or syncs a directory. Reads: the rest.
  enum class Kind { kWrite, kRead, kAny };
  struct Fault {
    Kind kind = Kind::kWrite;
    int64_t after = 0;      // that many operations of this kind succeed first
    bool for_ever = false;  // all that follow fail too, as if the disk were gone
    int error = EIO;        // an errno
  };

  FakeFileSystem();
  ~FakeFileSystem() override;

  // --- Power loss ---

  // Goes back to what was durable, plus what luck saved. Files opened before are dead: every
  // operation on them fails.
  void Crash(uint64_t seed) EXCLUDES(mu_);
  // What Crash(seed) would leave, elsewhere, so that many crashes can be tried from one state.
  std::unique_ptr<FakeFileSystem> AfterCrash(uint64_t seed) const EXCLUDES(mu_);

  // --- Failures ---

  // Replaces the fault that is set, if any. A failing Flush(), Sync() or Close() has written half of
  // what was buffered; any other failing operation has done nothing.
  void Inject(const Fault& fault) EXCLUDES(mu_);
  void ClearFault() EXCLUDES(mu_);
  // Operations so far, failed ones included: how many places there are to fail at.
  int64_t num_operations(Kind kind) const EXCLUDES(mu_);
  // Past this many bytes in all files, flushing fails with ENOSPC.
  void set_capacity(uint64_t bytes) EXCLUDES(mu_);

  // --- FileSystem; paths are absolute or not, it makes no difference, and have no ".." ---

  Result<std::unique_ptr<internal::WritableFile>> NewWritableFile(const std::string& path,
                                                                  OpenMode mode) override;
  Result<std::unique_ptr<internal::RandomAccessFile>> NewRandomAccessFile(const std::string& path) override;
  Result<internal::Buffer> MapFile(const std::string& path) override;
  Result<std::vector<std::string>> ListDir(const std::string& path) override;
  Status CreateDir(const std::string& path, Parents parents) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status SyncDir(const std::string& path) override;
  Result<bool> FileExists(const std::string& path) override;
  Result<uint64_t> FileSize(const std::string& path) override;
  // Nobody waits for it: one thread writes at a time.
  Result<std::unique_ptr<internal::FileLock>> LockFile(const std::string& path,
                                                       std::chrono::nanoseconds timeout) override;
  Result<uint64_t> GetFreeSpace(const std::string& path) override;

  // For tests of readers: the bytes of a file as they are now, or put there as if synced (file and
  // name). Neither is counted, neither fails by a fault.
  Result<std::string> ReadAll(const std::string& path) EXCLUDES(mu_);
  Status WriteAll(const std::string& path, std::string_view bytes) EXCLUDES(mu_);

 private:
  class Writer;
  class Reader;
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;

  // A change of names that is not durable yet. Without `from_dir` a new name, without `to_dir` a
  // name removed, with both a rename.
  struct NameChange {
    NodePtr node;
    NodePtr from_dir;
    std::string from;
    NodePtr to_dir;
    std::string to;
  };
  // Where a path leads: the directory, the last name, and what is there, if anything.
  struct Place {
    NodePtr dir;
    std::string name;
    NodePtr node;
  };

  // Counts an operation, and says how it fails when it must: an errno, or 0.
  int Count(Kind kind) REQUIRES(mu_);
  // An errno when a directory on the way is missing or none.
  int Find(const std::string& path, Place* place) const REQUIRES(mu_);
  void Change(NameChange change) REQUIRES(mu_);
  uint64_t UsedBytes() const REQUIRES(mu_);
  NodePtr RootAfterCrash(uint64_t seed) const REQUIRES(mu_);

  mutable internal::Mutex mu_;
  NodePtr root_ GUARDED_BY(mu_);
  std::vector<NameChange> changes_ GUARDED_BY(mu_);  // in the order they were made
  int64_t crashes_ GUARDED_BY(mu_) = 0;
  uint64_t capacity_ GUARDED_BY(mu_) = uint64_t{1} << 40;
  std::optional<Fault> fault_ GUARDED_BY(mu_);
  int64_t writes_ GUARDED_BY(mu_) = 0;
  int64_t reads_ GUARDED_BY(mu_) = 0;
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_FAKE_FILE_SYSTEM_H_
