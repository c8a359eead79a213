#include "base/server_registry.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

class ServerRegistryTest : public ::testing::Test {
 protected:
  ServerRegistryTest() {
    std::string name = ::testing::TempDir() + "/registry_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~ServerRegistryTest() override { std::filesystem::remove_all(folder_); }
  std::vector<std::string> Addresses(RegistryReader* reader, TimePoint now) {
    std::vector<std::string> addresses;
    for (const RegisteredServer& server : reader->Read(now).value()) addresses.push_back(server.address);
    return addresses;
  }
  std::string folder_;
};

TEST_F(ServerRegistryTest, AServerIsFoundUntilItLeaves) {
  RegistryReader reader(folder_ + "/new");
  EXPECT_TRUE(reader.Read(TimePoint(1s)).value().empty()) << "the folder does not exist yet";
  auto registration =
      ServerRegistration::Start(folder_ + "/new", {.address = "a:1", .shard = 7, .life_id = "ab"}).value();
  const auto other =
      ServerRegistration::Start(folder_ + "/new", {.address = "b:2", .shard = 8, .life_id = "cd"}).value();
  const std::vector<RegisteredServer> servers = reader.Read(TimePoint(2s)).value();
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_EQ(servers[0].address, "a:1");
  EXPECT_EQ(servers[0].shard, 7u);
  EXPECT_EQ(servers[0].life_id, "ab");
  registration.reset();
  EXPECT_THAT(Addresses(&reader, TimePoint(3s)), testing::ElementsAre("b:2"));
}

TEST_F(ServerRegistryTest, AServerThatIsGoneWithoutAWordExpires) {
  const auto registration =
      ServerRegistration::Start(folder_, {.address = "a:1", .life_id = "ab"}, 1h).value();
  RegistryReader reader(folder_, 15s);
  EXPECT_EQ(Addresses(&reader, TimePoint(1s)).size(), 1u);
  EXPECT_EQ(Addresses(&reader, TimePoint(15s)).size(), 1u);
  EXPECT_TRUE(Addresses(&reader, TimePoint(16s)).empty()) << "its file was not replaced";
  // An old file is ignored when it is first seen, and used once it changes.
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, registration->path().c_str(), old, 0), 0);
  RegistryReader late(folder_, 15s);
  EXPECT_TRUE(Addresses(&late, TimePoint(1s)).empty());
  ASSERT_EQ(utimensat(AT_FDCWD, registration->path().c_str(), nullptr, 0), 0);
  EXPECT_EQ(Addresses(&late, TimePoint(2s)).size(), 1u);
}

TEST_F(ServerRegistryTest, TheFileIsRenewed) {
  const auto registration =
      ServerRegistration::Start(folder_, {.address = "a:1", .life_id = "ab"}, 5ms).value();
  std::filesystem::remove(registration->path());
  EXPECT_TRUE(test::WaitUntil([&] { return std::filesystem::exists(registration->path()); }));
}

TEST_F(ServerRegistryTest, TheHeartbeatGoesOnWhenTheDiskIsFull) {
  const auto registration =
      ServerRegistration::Start(folder_, {.address = "a:1", .life_id = "ab"}, 5ms).value();
  // The next draft cannot be written: a folder has its name.
  ASSERT_TRUE(test::WaitUntil([&] { return mkdir((registration->path() + ".new").c_str(), 0700) == 0; }));
  const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, registration->path().c_str(), old, 0), 0);
  EXPECT_TRUE(test::WaitUntil([&] {
    struct stat file {};
    return stat(registration->path().c_str(), &file) == 0 && file.st_mtim.tv_sec > 1000;
  }));
  RegistryReader reader(folder_);
  EXPECT_THAT(Addresses(&reader, TimePoint(1s)), testing::ElementsAre("a:1"));
}

TEST_F(ServerRegistryTest, AServerRemovesTheFilesOfItsFormerLives) {
  const auto write = [&](const std::string& name, const std::string& address) {
    std::ofstream(folder_ + "/" + name) << "reverb server 1\naddress " << address << "\nend\n";
  };
  write("old.server", "a:1");
  write("old.server.new", "a:1");
  write("draft.server.new", "a:1");
  write("other.server", "b:1");
  write("other.server.new", "b:1");
  write("notes.txt", "a:1");
  const auto registration = ServerRegistration::Start(folder_, {.address = "a:1", .life_id = "ab"}).value();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("ab.server", "other.server", "other.server.new", "notes.txt"));
}

TEST_F(ServerRegistryTest, FilesThatAreNotRegularAreIgnored) {
  ASSERT_EQ(mkfifo((folder_ + "/fifo.server").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((folder_ + "/folder.server").c_str(), 0700), 0);
  // Neither reading nor registering waits for a writer of the FIFO.
  const auto registration = ServerRegistration::Start(folder_, {.address = "a:1", .life_id = "ab"}).value();
  RegistryReader reader(folder_);
  EXPECT_THAT(Addresses(&reader, TimePoint(1s)), testing::ElementsAre("a:1"));
}

TEST_F(ServerRegistryTest, OtherFilesAreIgnored) {
  std::ofstream(folder_ + "/x.server") << "something else\n";
  std::ofstream(folder_ + "/y.server") << "reverb server 1\naddress a:1\n";  // cut off
  std::ofstream(folder_ + "/z.txt") << "reverb server 1\naddress a:1\nend\n";
  RegistryReader reader(folder_);
  EXPECT_TRUE(reader.Read(TimePoint(1s)).value().empty());
  EXPECT_THAT(RegistryReader(folder_ + "/z.txt").Read(TimePoint(1s)).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("cannot be read")));
}

TEST_F(ServerRegistryTest, Folders) {
  EXPECT_EQ(RegistryFolder("file:///shared/run42").value(), "/shared/run42");
  for (const char* address : {"file://", "file://relative", "/shared", ""}) {
    EXPECT_THAT(RegistryFolder(address).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("give it as file:///path")));
  }
  EXPECT_THAT(ServerRegistration::Start("/proc/none", {.address = "a:1", .life_id = "x"}).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("/proc/none")));
}

}  // namespace
}  // namespace reverb::internal
