// fake_file_system.h — a file system in memory, with power loss and failures on request.
//
// Models the weakest behaviour that file_system.h allows after a power loss. Data that is not covered by a
// Sync() of the file and a SyncDir() of every parent directory may or may not be lost:
//   - Each file keeps its bytes up to the last Sync() and a prefix of what was flushed since. The last
//     write may be torn, or have its length but zeros in place of bytes.
//   - Each name that was created, removed or renamed since the last SyncDir() of its directory may be durable
//     or not, independently of the others, so also a later one without an earlier one. A rename is atomic.
// Any operation can be made to fail, and the disk can be full.
//
// Thread-safe. Files must not outlive the file system.
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

class FakeFileSystem : public internal::FileSystem {
 public:
  // With this seed, a crash deterministically loses everything that may be lost.
  static constexpr uint64_t kLoseAll = 0;

  // The operations that a fault counts. Writes: opening for writing, each call on a WritableFile, writes to a
  // BlockFile, and calls that change or sync a directory. Reads: all others.
  enum class Kind { kWrite, kRead, kAny };
  struct Fault {
    Kind kind = Kind::kWrite;
    int64_t after = 0;      // number of operations of this kind that succeed first
    bool for_ever = false;  // all later operations fail too, as if the disk were gone
    int64_t every = 0;      // above 0: of the later operations, every n-th fails too
    int error = EIO;        // errno value
  };

  FakeFileSystem();
  ~FakeFileSystem() override;

  // --- Power loss ---

  // Reverts to the durable state plus a random part of the rest. Every operation on a file that was opened
  // before fails.
  void Crash(uint64_t seed) EXCLUDES(mu_);
  // Returns a copy in the state that Crash(seed) would leave, so that many crashes can be tried from one
  // state.
  std::unique_ptr<FakeFileSystem> AfterCrash(uint64_t seed) const EXCLUDES(mu_);

  // --- Failures ---

  // Replaces the current fault, if any. A failing Flush(), Sync() or Close() writes half of the buffered
  // bytes; any other failing operation has no effect.
  void Inject(const Fault& fault) EXCLUDES(mu_);
  void ClearFault() EXCLUDES(mu_);
  // Returns the number of operations so far, including failed ones: the number of possible points of failure.
  int64_t num_operations(Kind kind) const EXCLUDES(mu_);
  // Makes flushes fail with ENOSPC once all files together exceed this many bytes.
  void set_capacity(uint64_t bytes) EXCLUDES(mu_);

  // --- FileSystem; absolute and relative paths are equivalent, and ".." is not supported ---

  Result<std::unique_ptr<internal::WritableFile>> NewWritableFile(const std::string& path,
                                                                  OpenMode mode) override;
  Result<std::unique_ptr<internal::RandomAccessFile>> NewRandomAccessFile(const std::string& path) override;
  // After a power loss, it contains what was in it at the last SyncFile().
  Result<std::unique_ptr<internal::BlockFile>> NewBlockFile(const std::string& path, uint64_t size) override;
  Status LinkFile(const std::string& from, const std::string& to) override;
  Status SyncFile(const std::string& path) override;
  Result<internal::Buffer> MapFile(const std::string& path) override;
  Result<std::vector<std::string>> ListDir(const std::string& path) override;
  Status CreateDir(const std::string& path, Parents parents) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status SyncDir(const std::string& path) override;
  Result<bool> FileExists(const std::string& path) override;
  Result<uint64_t> FileSize(const std::string& path) override;
  // Never waits: one thread writes at a time.
  Result<std::unique_ptr<internal::FileLock>> LockFile(const std::string& path,
                                                       std::chrono::nanoseconds timeout) override;
  Result<uint64_t> GetFreeSpace(const std::string& path) override;

  // For tests of readers: returns the current bytes of a file, or sets them as if file and name were synced.
  // Neither counts as an operation, and faults do not apply.
  Result<std::string> ReadAll(const std::string& path) EXCLUDES(mu_);
  Status WriteAll(const std::string& path, std::string_view bytes) EXCLUDES(mu_);

 private:
  class Writer;
  class Reader;
  class Blocks;
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;

  // A change of a name that is not durable yet. Without `from_dir`: a new name; without `to_dir`: a removed
  // name; with both: a rename.
  struct NameChange {
    NodePtr node;
    NodePtr from_dir;
    std::string from;
    NodePtr to_dir;
    std::string to;
  };
  // The result of a path lookup: the directory, the last name, and the node with that name, if any.
  struct Place {
    NodePtr dir;
    std::string name;
    NodePtr node;
  };

  // Counts an operation. Returns the errno value with which it must fail, or 0.
  int Count(Kind kind) REQUIRES(mu_);
  // Returns an errno value if a parent is missing or not a directory.
  int Find(const std::string& path, Place* place) const REQUIRES(mu_);
  void Change(NameChange change) REQUIRES(mu_);
  uint64_t UsedBytes() const REQUIRES(mu_);
  NodePtr RootAfterCrash(uint64_t seed) const REQUIRES(mu_);

  mutable internal::Mutex mu_;
  NodePtr root_ GUARDED_BY(mu_);
  std::vector<NameChange> changes_ GUARDED_BY(mu_);  // in chronological order
  int64_t crashes_ GUARDED_BY(mu_) = 0;
  uint64_t capacity_ GUARDED_BY(mu_) = uint64_t{1} << 40;
  std::optional<Fault> fault_ GUARDED_BY(mu_);
  int64_t writes_ GUARDED_BY(mu_) = 0;
  int64_t reads_ GUARDED_BY(mu_) = 0;
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_FAKE_FILE_SYSTEM_H_
