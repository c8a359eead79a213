#include "base/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using test::IsOkAndHolds;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

using OpenMode = FileSystem::OpenMode;
using Parents = FileSystem::Parents;

class PosixFileSystemTest : public testing::Test {
 protected:
  PosixFileSystemTest() {
    std::string pattern = testing::TempDir() + "/reverb_fs_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  ~PosixFileSystemTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  void Write(const std::string& path, std::string_view bytes, OpenMode mode = OpenMode::kTruncate) {
    auto file = fs_->NewWritableFile(path, mode);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Append(bytes));
    ASSERT_OK((*file)->Close());
  }

  std::string Read(const std::string& path) {
    auto file = fs_->NewRandomAccessFile(path);
    if (!file.ok()) return file.status().ToString();
    std::string bytes((*file)->size(), '\0');
    const auto n = (*file)->Read(0, std::span(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()));
    if (!n.ok()) return n.status().ToString();
    bytes.resize(*n);
    return bytes;
  }

  FileSystem* const fs_ = PosixFileSystem();
  std::string dir_;
};

// Bytes in a sequence that hardly repeats.
std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 13);
  return bytes;
}

TEST_F(PosixFileSystemTest, AppendedBytesCanBeRead) {
  Write(Path("f"), "hello");
  EXPECT_EQ(Read(Path("f")), "hello");
  EXPECT_THAT(fs_->FileSize(Path("f")), IsOkAndHolds(5u));
}

TEST_F(PosixFileSystemTest, OpeningTruncatesOrAppends) {
  Write(Path("f"), "one");
  Write(Path("f"), "two", OpenMode::kAppend);
  EXPECT_EQ(Read(Path("f")), "onetwo");
  Write(Path("f"), "3", OpenMode::kTruncate);
  EXPECT_EQ(Read(Path("f")), "3");
}

TEST_F(PosixFileSystemTest, SmallAndLargeAppendsKeepTheirOrder) {
  auto file = fs_->NewWritableFile(Path("f"), OpenMode::kTruncate);
  ASSERT_OK(file);
  std::string expected;
  size_t n = 0;
  for (const size_t size : {1, 100, 65535, 1, 0, 65536, 3, 65537, 70000, 5, 300000, 65530, 6, 1}) {
    n += 7;  // so that no two appends start with the same bytes
    const std::string piece = Pattern(size + n).substr(n);
    expected += piece;
    ASSERT_OK((*file)->Append(piece));
  }
  ASSERT_OK((*file)->Close());
  EXPECT_TRUE(Read(Path("f")) == expected);
}

TEST_F(PosixFileSystemTest, FlushedBytesAreSeenByReadersBeforeClose) {
  auto file = fs_->NewWritableFile(Path("f"), OpenMode::kTruncate);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Append("abc"));
  ASSERT_OK((*file)->Flush());
  EXPECT_EQ(Read(Path("f")), "abc");
  ASSERT_OK((*file)->Append("def"));
  ASSERT_OK((*file)->Sync());
  EXPECT_EQ(Read(Path("f")), "abcdef");
}

TEST_F(PosixFileSystemTest, WithoutCloseUnflushedBytesAreDiscarded) {
  {
    auto file = fs_->NewWritableFile(Path("f"), OpenMode::kTruncate);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Append("kept"));
    ASSERT_OK((*file)->Flush());
    ASSERT_OK((*file)->Append("lost"));
  }
  EXPECT_EQ(Read(Path("f")), "kept");
}

TEST_F(PosixFileSystemTest, AClosedFileRejectsAppends) {
  auto file = fs_->NewWritableFile(Path("f"), OpenMode::kTruncate);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Close());
  EXPECT_THAT((*file)->Append("x"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT((*file)->Sync(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT((*file)->Close(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_F(PosixFileSystemTest, AFullDiskIsAPermanentErrorThatNamesARemedy) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  auto file = fs_->NewWritableFile("/dev/full", OpenMode::kAppend);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Append("x"));
  const Status first = (*file)->Flush();
  EXPECT_THAT(first, StatusIs(StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("write"), HasSubstr("\"/dev/full\""),
                                    HasSubstr("No space left"), HasSubstr("free space"))));
  EXPECT_EQ((*file)->Append("y"), first);
  EXPECT_EQ((*file)->Sync(), first);
  EXPECT_EQ((*file)->Close(), first);
}

TEST_F(PosixFileSystemTest, ReadsStopAtTheEndOfTheFile) {
  Write(Path("f"), "0123456789");
  auto file = fs_->NewRandomAccessFile(Path("f"));
  ASSERT_OK(file);
  EXPECT_EQ((*file)->size(), 10u);
  uint8_t out[4] = {};
  EXPECT_THAT((*file)->Read(3, out), IsOkAndHolds(4u));
  EXPECT_EQ(out[0], '3');
  EXPECT_EQ(out[3], '6');
  EXPECT_THAT((*file)->Read(8, out), IsOkAndHolds(2u));
  EXPECT_EQ(out[1], '9');
  EXPECT_THAT((*file)->Read(10, out), IsOkAndHolds(0u));
  EXPECT_THAT((*file)->Read(~uint64_t{0} - 2, out), IsOkAndHolds(0u));
  EXPECT_THAT((*file)->Read(0, {}), IsOkAndHolds(0u));
}

TEST_F(PosixFileSystemTest, AMappingOutlivesItsFileNameAndItsFirstBuffer) {
  const std::string bytes = Pattern(100'000);
  Write(Path("f"), bytes);
  Buffer slice;
  {
    Result<Buffer> mapped = fs_->MapFile(Path("f"));
    ASSERT_OK(mapped);
    EXPECT_EQ(mapped->size(), bytes.size());
    slice = mapped->Slice(50'000, 1000);
  }
  ASSERT_OK(fs_->RemoveFile(Path("f")));
  EXPECT_EQ(std::string(slice.span().begin(), slice.span().end()), bytes.substr(50'000, 1000));
}

TEST_F(PosixFileSystemTest, AnEmptyFileMapsToAnEmptyBuffer) {
  Write(Path("f"), "");
  const Result<Buffer> mapped = fs_->MapFile(Path("f"));
  ASSERT_OK(mapped);
  EXPECT_TRUE(mapped->empty());
}

TEST_F(PosixFileSystemTest, DirectoriesAreCreatedListedAndRemoved) {
  ASSERT_OK(fs_->CreateDir(Path("d"), Parents::kMustExist));
  EXPECT_THAT(fs_->CreateDir(Path("d"), Parents::kMustExist), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(fs_->CreateDir(Path("x/y"), Parents::kMustExist), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->ListDir(Path("d")), IsOkAndHolds(IsEmpty()));
  Write(Path("d/b"), "");
  Write(Path("d/a"), "");
  ASSERT_OK(fs_->CreateDir(Path("d/c"), Parents::kMustExist));
  EXPECT_THAT(fs_->ListDir(Path("d")), IsOkAndHolds(ElementsAre("a", "b", "c")));
  EXPECT_THAT(fs_->RemoveDir(Path("d")), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_OK(fs_->RemoveFile(Path("d/a")));
  ASSERT_OK(fs_->RemoveFile(Path("d/b")));
  ASSERT_OK(fs_->RemoveDir(Path("d/c")));
  ASSERT_OK(fs_->SyncDir(Path("d")));
  ASSERT_OK(fs_->RemoveDir(Path("d")));
  EXPECT_THAT(fs_->FileExists(Path("d")), IsOkAndHolds(false));
}

TEST_F(PosixFileSystemTest, MissingParentsAreCreatedOnRequest) {
  ASSERT_OK(fs_->CreateDir(Path("a//b/c/"), Parents::kCreateMissing));
  EXPECT_THAT(fs_->FileExists(Path("a/b/c")), IsOkAndHolds(true));
  ASSERT_OK(fs_->CreateDir(Path("a/b/c"), Parents::kCreateMissing)) << "again is fine";
  ASSERT_OK(fs_->CreateDir("/", Parents::kCreateMissing));
  Write(Path("file"), "");
  EXPECT_THAT(fs_->CreateDir(Path("file"), Parents::kCreateMissing), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(fs_->CreateDir(Path("file/d"), Parents::kCreateMissing),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs_->CreateDir("", Parents::kCreateMissing), StatusIs(StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, RenameReplacesAnExistingFile) {
  Write(Path("old"), "old");
  Write(Path("new"), "new");
  ASSERT_OK(fs_->Rename(Path("new"), Path("old")));
  EXPECT_EQ(Read(Path("old")), "new");
  EXPECT_THAT(fs_->FileExists(Path("new")), IsOkAndHolds(false));
  EXPECT_THAT(fs_->Rename(Path("new"), Path("old")),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr(Path("new")), HasSubstr(Path("old")))));
}

TEST_F(PosixFileSystemTest, ErrorsNameOperationPathAndReason) {
  EXPECT_THAT(
      fs_->NewRandomAccessFile(Path("none")),
      StatusIs(StatusCode::kNotFound, "cannot open \"" + Path("none") + "\": No such file or directory"));
  EXPECT_THAT(fs_->MapFile(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->ListDir(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->RemoveFile(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->RemoveDir(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->SyncDir(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->FileSize(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->GetFreeSpace(Path("none")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(fs_->NewWritableFile(Path("none/f"), OpenMode::kTruncate), StatusIs(StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, ADirectoryIsNotAFile) {
  EXPECT_THAT(fs_->NewRandomAccessFile(dir_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("directory")));
  EXPECT_THAT(fs_->MapFile(dir_), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs_->FileSize(dir_), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs_->NewWritableFile(dir_, OpenMode::kAppend), StatusIs(StatusCode::kFailedPrecondition));
  Write(Path("f"), "");
  EXPECT_THAT(fs_->ListDir(Path("f")), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs_->FileExists(Path("f/g")), IsOkAndHolds(false));
}

TEST_F(PosixFileSystemTest, OnlyRegularFilesCanBeOpenedForReading) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  for (const std::string& path : {Path("fifo"), std::string("/dev/zero")}) {
    const auto is_refused =
        StatusIs(StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("cannot open \"" + path + "\""), HasSubstr("only regular files")));
    EXPECT_THAT(fs_->NewRandomAccessFile(path), is_refused);
    EXPECT_THAT(fs_->MapFile(path), is_refused);
  }
}

TEST_F(PosixFileSystemTest, ALockExcludesOthersUntilItIsDestroyed) {
  auto first = fs_->LockFile(Path("lock"), 0s);
  ASSERT_OK(first);
  EXPECT_THAT(fs_->LockFile(Path("lock"), 0s), StatusIs(StatusCode::kDeadlineExceeded));
  std::thread other([&] { EXPECT_OK(fs_->LockFile(Path("lock"), 60s)); });
  first->reset();
  other.join();
  EXPECT_OK(fs_->LockFile(Path("lock"), 0s));
  EXPECT_THAT(fs_->LockFile(Path("none/lock"), 0s), StatusIs(StatusCode::kNotFound));
}

TEST_F(PosixFileSystemTest, ALockTimeoutNamesFileAndHolder) {
  const auto lock = fs_->LockFile(Path("lock"), 0s);
  ASSERT_OK(lock);
  EXPECT_THAT(fs_->LockFile(Path("lock"), 1ms),
              StatusIs(StatusCode::kDeadlineExceeded, "cannot lock \"" + Path("lock") +
                                                          "\" within 0.001 s: process " +
                                                          std::to_string(::getpid()) + " holds the lock"));
}

// A process forked from this one that sleeps until it is killed.
class IdleChild {
 public:
  IdleChild() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
  }
  ~IdleChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST_F(PosixFileSystemTest, AForkedChildDoesNotKeepALockThatWasReleased) {
  auto lock = fs_->LockFile(Path("lock"), 0s);
  ASSERT_OK(lock);
  const IdleChild child;
  EXPECT_THAT(fs_->LockFile(Path("lock"), 0s), StatusIs(StatusCode::kDeadlineExceeded));
  lock->reset();
  EXPECT_OK(fs_->LockFile(Path("lock"), 0s));
}

// A process that locks a file, forks an idle child and dies, as a server that is killed.
TEST_F(PosixFileSystemTest, AForkedChildDoesNotKeepTheLockOfAProcessThatHasDied) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto lock = fs_->LockFile(Path("lock"), 0s);
    const pid_t child = lock.ok() ? ::fork() : -1;
    if (child == 0) {
      while (true) ::pause();
    }
    (void)!::write(pipe_ends[1], &child, sizeof(child));
    ::_exit(0);
  }
  pid_t child = -1;
  ASSERT_EQ(::read(pipe_ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::waitpid(holder, nullptr, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  ASSERT_GT(child, 0);
  EXPECT_OK(fs_->LockFile(Path("lock"), 10s));  // once the child runs
  ::kill(child, SIGKILL);
}

TEST_F(PosixFileSystemTest, AForkedChildHasNoDescriptorOfABlockFile) {
  auto file = fs_->NewBlockFile(Path("blocks"), BlockFile::kBlockBytes);
  ASSERT_OK(file);
  const IdleChild child;
  const std::string folder = "/proc/" + std::to_string(child.pid()) + "/fd";
  const auto has_file = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry, ignored) == Path("blocks")) return true;
    }
    return false;
  };
  EXPECT_TRUE(test::WaitUntil([&] { return !has_file(); }));  // once the child runs
  EXPECT_OK((*file)->Truncate(0)) << "the parent has it still";
}

// --- Block files through the page cache ---

int syncs = 0;
int sync_error = 0;
int CountedSync(int fd) {
  ++syncs;
  errno = sync_error;
  return sync_error == 0 ? ::fdatasync(fd) : -1;
}

// The page cache takes every write. That the disk cannot store it shows later.
TEST_F(PosixFileSystemTest, AWriteThroughThePageCacheReportsAnErrorOfTheDisk) {
  syncs = sync_error = 0;
  const auto file = NewBufferedBlockFile(Path("blocks"), 2 * BlockFile::kBlockBytes, CountedSync);
  ASSERT_OK(file);
  EXPECT_EQ((*file)->descriptor(), -1) << "would be read past the cache";
  const std::vector<uint8_t> ones(BlockFile::kBlockBytes, 1);
  ASSERT_OK((*file)->Write(0, ones));
  EXPECT_EQ(syncs, 1);
  sync_error = ENOSPC;
  EXPECT_THAT((*file)->Write(BlockFile::kBlockBytes, ones),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("cannot write back")));
  // A later write of the same bytes is not taken for granted.
  sync_error = 0;
  ASSERT_OK((*file)->Write(BlockFile::kBlockBytes, ones));
  EXPECT_EQ(syncs, 3);
  std::vector<uint8_t> read(2 * BlockFile::kBlockBytes);
  ASSERT_OK((*file)->Read(0, read));
  EXPECT_THAT(read, testing::Each(1));
}

TEST_F(PosixFileSystemTest, ReportsFreeSpace) { EXPECT_THAT(fs_->GetFreeSpace(dir_), IsOkAndHolds(Gt(0u))); }

TEST(FileErrorTest, CodesReflectWhatAProgramCanDo) {
  const auto code = [](int error) { return FileError("open", "p", error).code(); };
  EXPECT_EQ(code(ENOENT), StatusCode::kNotFound);
  EXPECT_EQ(code(EEXIST), StatusCode::kAlreadyExists);
  EXPECT_EQ(code(EACCES), StatusCode::kPermissionDenied);
  EXPECT_EQ(code(EPERM), StatusCode::kPermissionDenied);
  // Not RESOURCE_EXHAUSTED, which means memory and becomes an IndexError in Python.
  EXPECT_EQ(code(ENOSPC), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(EDQUOT), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(EFBIG), StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(EIO), StatusCode::kDataLoss);
  EXPECT_EQ(code(ENODATA), StatusCode::kDataLoss);  // of a medium error
  EXPECT_EQ(code(ENOMEM), StatusCode::kUnavailable);
  EXPECT_EQ(code(EMFILE), StatusCode::kUnavailable);
  EXPECT_EQ(code(12345), StatusCode::kUnknown);
  EXPECT_EQ(FileError("open", "a/b", EACCES).ToString(),
            "PERMISSION_DENIED: cannot open \"a/b\": Permission denied");
}

}  // namespace
}  // namespace reverb::internal
