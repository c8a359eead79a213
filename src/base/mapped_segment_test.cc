#include "base/mapped_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace reverb::internal {
namespace {

constexpr uint64_t kBytes = 1 << 16;

// A memfd of `bytes` bytes with the given seals.
class Memfd {
 public:
  explicit Memfd(int seals, uint64_t bytes = kBytes, unsigned flags = 0)
      : descriptor_(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags)) {
    if (descriptor_ < 0) return;
    EXPECT_EQ(::ftruncate(descriptor_, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(descriptor_, F_ADD_SEALS, seals), 0);
  }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;
  ~Memfd() {
    if (descriptor_ >= 0) (void)::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

std::string ErrorOf(int descriptor, uint64_t bytes = kBytes) {
  const auto mapped = MappedSegment::Map(descriptor, bytes);
  EXPECT_FALSE(mapped.ok());
  if (mapped.ok()) return "";
  EXPECT_EQ(mapped.status().code(), StatusCode::kInvalidArgument);
  return std::string(mapped.status().message());
}

TEST(MappedSegmentTest, ASealedMemfdIsMapped) {
  const Memfd memfd(F_SEAL_SHRINK);
  ASSERT_EQ(::pwrite(memfd.get(), "hello", 5, 1000), 5);
  const auto mapped = MappedSegment::Map(memfd.get(), kBytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  EXPECT_EQ((*mapped)->size(), kBytes);
  const auto range = (*mapped)->Range(1000, 5);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(std::string(range->begin(), range->end()), "hello");
}

TEST(MappedSegmentTest, PrivatePagesKeepTheirBytes) {
  const Memfd memfd(F_SEAL_SHRINK);
  ASSERT_EQ(::pwrite(memfd.get(), "before", 6, 4090), 6);  // on two pages
  ASSERT_EQ(::pwrite(memfd.get(), "before", 6, 20'000), 6);
  const auto mapped = MappedSegment::Map(memfd.get(), kBytes);
  ASSERT_TRUE(mapped.ok());
  const std::span<const uint8_t> kept = (*mapped)->Range(4090, 6).value();
  const std::span<const uint8_t> shared = (*mapped)->Range(20'000, 6).value();
  EXPECT_TRUE((*mapped)->MakePrivate(kept));
  EXPECT_TRUE((*mapped)->MakePrivate({}));
  const uint8_t elsewhere = 0;
  EXPECT_TRUE((*mapped)->MakePrivate({&elsewhere, 1}));
  ASSERT_EQ(::pwrite(memfd.get(), "after!", 6, 4090), 6);
  ASSERT_EQ(::pwrite(memfd.get(), "after!", 6, 20'000), 6);
  EXPECT_EQ(std::string(kept.begin(), kept.end()), "before");
  EXPECT_EQ(std::string(shared.begin(), shared.end()), "after!");
  ASSERT_EQ(::fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  EXPECT_EQ(std::string(kept.begin(), kept.end()), "before");
}

TEST(MappedSegmentTest, TheMappingNeedsNoDescriptor) {
  Result<std::shared_ptr<const MappedSegment>> mapped = Status::Unavailable("not mapped");
  {
    const Memfd memfd(F_SEAL_SHRINK | F_SEAL_GROW);
    mapped = MappedSegment::Map(memfd.get(), kBytes);
  }
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->Range(kBytes - 1, 1).value()[0], 0);
}

TEST(MappedSegmentTest, AHoleThatItsOwnerPunchesReadsAsZeros) {
  const Memfd memfd(F_SEAL_SHRINK);
  ASSERT_EQ(::pwrite(memfd.get(), "x", 1, 0), 1);
  const auto mapped = MappedSegment::Map(memfd.get(), kBytes);
  ASSERT_TRUE(mapped.ok());
  const std::span<const uint8_t> bytes = (*mapped)->Range(0, kBytes).value();
  EXPECT_EQ(bytes[0], 'x');
  ASSERT_EQ(::fallocate(memfd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  EXPECT_EQ(*const_cast<const volatile uint8_t*>(bytes.data()), 0);
}

TEST(MappedSegmentTest, AMemfdThatCanShrinkIsRefused) {
  EXPECT_NE(ErrorOf(Memfd(0).get()).find("F_SEAL_SHRINK"), std::string::npos);
  EXPECT_NE(ErrorOf(Memfd(F_SEAL_GROW).get()).find("F_SEAL_SHRINK"), std::string::npos);
  EXPECT_NE(ErrorOf(Memfd(F_SEAL_SEAL).get()).find("F_SEAL_SHRINK"), std::string::npos);
}

TEST(MappedSegmentTest, OtherDescriptorsAreRefused) {
  EXPECT_NE(ErrorOf(-1).find("is not a memfd"), std::string::npos);
  EXPECT_NE(ErrorOf(1'000'000).find("is not a memfd"), std::string::npos);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  EXPECT_NE(ErrorOf(pipe[0]).find("is not a memfd"), std::string::npos);
  (void)::close(pipe[0]);
  (void)::close(pipe[1]);
  std::string path = testing::TempDir() + "mapped_segment_XXXXXX";
  const int file = ::mkstemp(path.data());
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, kBytes), 0);
  EXPECT_FALSE(ErrorOf(file).empty());
  (void)::unlink(path.c_str());
  (void)::close(file);
}

TEST(MappedSegmentTest, AMemfdOfHugePagesIsRefused) {
  // An access to it faults if the system has no free huge page, and it has none by default.
  const Memfd memfd(F_SEAL_SHRINK, uint64_t{2} << 20, MFD_HUGETLB);
  if (memfd.get() < 0) GTEST_SKIP() << "the system has no such memfds";
  EXPECT_NE(ErrorOf(memfd.get(), uint64_t{2} << 20).find("ordinary pages"), std::string::npos);
}

TEST(MappedSegmentTest, AWrongSizeIsRefused) {
  const Memfd memfd(F_SEAL_SHRINK);
  EXPECT_NE(ErrorOf(memfd.get(), kBytes + 1).find("65536 bytes, but 65537 were announced"),
            std::string::npos);
  EXPECT_NE(ErrorOf(memfd.get(), 1).find("but 1 were announced"), std::string::npos);
  EXPECT_NE(ErrorOf(memfd.get(), 0).find("1 to"), std::string::npos);
  const Memfd huge(F_SEAL_SHRINK, uint64_t{1} << 50);
  EXPECT_NE(ErrorOf(huge.get(), uint64_t{1} << 50).find("1 to"), std::string::npos);
}

TEST(MappedSegmentTest, ARangeOutsideOfTheSegmentIsRefused) {
  const Memfd memfd(F_SEAL_SHRINK);
  const auto mapped = MappedSegment::Map(memfd.get(), kBytes);
  ASSERT_TRUE(mapped.ok());
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE((*mapped)->Range(0, kBytes).ok());
  EXPECT_TRUE((*mapped)->Range(kBytes, 0).ok());
  for (const auto& [offset, length] : {std::pair<uint64_t, uint64_t>{0, kBytes + 1},
                                       {1, kBytes},
                                       {kBytes, 1},
                                       {kBytes + 1, 0},
                                       {kMax, 1},
                                       {1, kMax},
                                       {kMax, kMax},
                                       {kMax - 10, 20}}) {
    const auto range = (*mapped)->Range(offset, length);
    EXPECT_EQ(range.status().code(), StatusCode::kInvalidArgument) << offset << " " << length;
  }
}

}  // namespace
}  // namespace reverb::internal
