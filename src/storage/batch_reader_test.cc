#include "storage/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::StatusIs;

constexpr size_t kBlock = BlockFile::kBlockBytes;

// Memory for blocks of a file.
class Blocks {
 public:
  explicit Blocks(size_t count)
      : count_(count),
        data_(static_cast<uint8_t*>(::operator new (count* kBlock, std::align_val_t{kBlock}))) {}
  ~Blocks() { ::operator delete (data_, std::align_val_t{kBlock}); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  std::span<uint8_t> block(size_t i) { return {data_ + i * kBlock, kBlock}; }
  std::span<uint8_t> all() { return {data_, count_ * kBlock}; }

 private:
  const size_t count_;
  uint8_t* const data_;
};

class CountingSink final : public ReadSink {
 public:
  explicit CountingSink(size_t reads) : statuses(reads) {}
  void OnRead(size_t index, Status status) override {
    statuses[index] = std::move(status);
    done.fetch_add(1);
  }
  std::vector<Status> statuses;
  std::atomic<size_t> done{0};
};

enum class Kind { kRing, kThreads, kFake };

class BatchReaderTest : public testing::TestWithParam<Kind> {
 protected:
  static constexpr size_t kBlocks = 300;

  void SetUp() override {
    path_ = GetParam() == Kind::kFake
                ? "/file"
                : testing::TempDir() + "/batch_reader_test." + std::to_string(::getpid());
    FileSystem* const fs = GetParam() == Kind::kFake ? &fake_ : PosixFileSystem();
    file_ = fs->NewBlockFile(path_, kBlocks * kBlock).value();
    Blocks blocks(kBlocks);
    for (size_t i = 0; i < kBlocks; ++i) {
      std::ranges::fill(blocks.block(i), static_cast<uint8_t>(i * 7));
    }
    ASSERT_OK(file_->Write(0, blocks.all()));
  }
  void TearDown() override {
    if (GetParam() != Kind::kFake) {
      EXPECT_OK(PosixFileSystem()->RemoveFile(path_));
    }
  }
  BatchReader::Options Options() const {
    return {.depth = 16, .max_threads = 4, .use_io_uring = GetParam() == Kind::kRing};
  }
  // Reads each block of the file, in a mixed order.
  std::vector<BatchReader::Read> AllBlocks(Blocks* out, const std::shared_ptr<CountingSink>& sink) {
    std::vector<BatchReader::Read> reads;
    for (size_t i = 0; i < kBlocks; ++i) {
      const size_t at = i * 37 % kBlocks;
      reads.push_back(
          {.file = file_, .offset = at * kBlock, .out = out->block(at), .sink = sink, .index = at});
    }
    return reads;
  }

  FakeFileSystem fake_;
  std::string path_;
  std::shared_ptr<BlockFile> file_;
};

TEST_P(BatchReaderTest, ReadsManyBlocksTogether) {
  BatchReader reader(Options());
  if (GetParam() != Kind::kRing) {
    EXPECT_FALSE(reader.uses_io_uring());
  }
  for (int round = 0; round < 3; ++round) {
    Blocks out(kBlocks);
    const auto sink = std::make_shared<CountingSink>(kBlocks);
    reader.Submit(AllBlocks(&out, sink));
    ASSERT_TRUE(test::WaitUntil([&] { return sink->done == kBlocks; }));
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_OK(sink->statuses[i]);
      ASSERT_EQ(out.block(i)[0], static_cast<uint8_t>(i * 7)) << i;
      ASSERT_EQ(out.block(i)[kBlock - 1], static_cast<uint8_t>(i * 7)) << i;
    }
  }
}

TEST_P(BatchReaderTest, ReadPastTheEndFailsAlone) {
  BatchReader reader(Options());
  Blocks out(3);
  const auto sink = std::make_shared<CountingSink>(3);
  std::vector<BatchReader::Read> reads;
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t offset = i == 1 ? kBlocks * kBlock : i * kBlock;
    reads.push_back({.file = file_, .offset = offset, .out = out.block(i), .sink = sink, .index = i});
  }
  reader.Submit(std::move(reads));
  ASSERT_TRUE(test::WaitUntil([&] { return sink->done == 3; }));
  EXPECT_OK(sink->statuses[0]);
  EXPECT_THAT(sink->statuses[1], StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(sink->statuses[2]);
}

TEST_P(BatchReaderTest, StopEndsEveryRead) {
  Blocks out(kBlocks);
  const auto sink = std::make_shared<CountingSink>(kBlocks);
  BatchReader reader(Options());
  reader.Submit(AllBlocks(&out, sink));
  reader.Stop();
  EXPECT_EQ(sink->done, kBlocks);
  for (const Status& status : sink->statuses) {
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(StatusCode::kCancelled));
    }
  }
  const auto late = std::make_shared<CountingSink>(kBlocks);
  reader.Submit(AllBlocks(&out, late));
  EXPECT_EQ(late->done, kBlocks);
  EXPECT_THAT(late->statuses[5], StatusIs(StatusCode::kCancelled));
}

INSTANTIATE_TEST_SUITE_P(Ways, BatchReaderTest, testing::Values(Kind::kRing, Kind::kThreads, Kind::kFake),
                         [](const auto& info) {
                           return std::string(info.param == Kind::kRing      ? "Ring"
                                              : info.param == Kind::kThreads ? "Threads"
                                                                             : "Fake");
                         });

}  // namespace
}  // namespace reverb::internal
