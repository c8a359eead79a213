#include "base/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace reverb::internal {
namespace {

namespace fs = std::filesystem;

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("machine_memory_") + info->name());
    fs::remove_all(root_);
    Write("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
  }
  ~MachineMemoryTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_.string() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t Usable() const { return UsableMemoryBytes(root_.string()); }

  fs::path root_;
};

constexpr int64_t kMachine = 16'000'000LL * 1024;

TEST_F(MachineMemoryTest, IsThatOfTheMachineWithoutGroups) { EXPECT_EQ(Usable(), kMachine); }

TEST_F(MachineMemoryTest, TakesTheSmallestLimitOfGroupsOfVersion2) {
  Write("/proc/self/cgroup", "0::/jobs/one/step\n");
  Write("/sys/fs/cgroup/jobs/one/step/memory.max", "max\n");
  EXPECT_EQ(Usable(), kMachine);
  Write("/sys/fs/cgroup/jobs/one/memory.max", "5000000000\n");
  EXPECT_EQ(Usable(), 5'000'000'000);
  Write("/sys/fs/cgroup/jobs/memory.max", "4000000000\n");
  EXPECT_EQ(Usable(), 4'000'000'000);
  Write("/sys/fs/cgroup/jobs/one/step/memory.max", "1000000000\n");
  EXPECT_EQ(Usable(), 1'000'000'000);
}

TEST_F(MachineMemoryTest, TakesTheLimitAboveWhichTheKernelSlowsAGroupDown) {
  Write("/proc/self/cgroup", "0::/system.slice/reverb.service\n");
  Write("/sys/fs/cgroup/system.slice/reverb.service/memory.max", "5000000000\n");
  Write("/sys/fs/cgroup/system.slice/reverb.service/memory.high", "max\n");
  EXPECT_EQ(Usable(), 5'000'000'000);
  Write("/sys/fs/cgroup/system.slice/reverb.service/memory.high", "4000000000\n");
  EXPECT_EQ(Usable(), 4'000'000'000);
  Write("/sys/fs/cgroup/system.slice/memory.high", "3000000000\n");
  EXPECT_EQ(Usable(), 3'000'000'000);
}

TEST_F(MachineMemoryTest, ReadsTheRootOfAContainer) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "2000000000\n");
  EXPECT_EQ(Usable(), 2'000'000'000);
}

TEST_F(MachineMemoryTest, ReadsGroupsOfVersion1) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/system.slice\n");
  // No limit.
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Usable(), kMachine);
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "3000000000\n");
  EXPECT_EQ(Usable(), 3'000'000'000);
}

TEST_F(MachineMemoryTest, ReadsTheRootOfAContainerOfVersion1) {
  // The path is that of the host; in the container only the root of the hierarchy exists.
  Write("/proc/self/cgroup", "4:hugetlb,memory:/docker/abc\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000000\n");
  EXPECT_EQ(Usable(), 3'000'000'000);
}

TEST(ThisMachineTest, HasMemory) {
  EXPECT_GT(UsableMemoryBytes(), 64 << 20);
  EXPECT_LT(DefaultMemoryLimit(), UsableMemoryBytes());
  EXPECT_GT(DefaultMemoryLimit(), UsableMemoryBytes() / 4 * 3);
  EXPECT_GT(ResidentBytes(), 1 << 20);
}

}  // namespace
}  // namespace reverb::internal
