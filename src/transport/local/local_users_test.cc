// Tests which users may connect, with clients that run as another user. That needs the rights of root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "testing/thread_sanitizer.h"
#include "transport/local/local_transport_testing.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class LocalUsersTest : public LocalTransportTest {
 protected:
  void SetUp() override {
#ifdef REVERB_TSAN
    GTEST_SKIP() << "ThreadSanitizer does not support children of processes with threads";
#endif
    ChildProcess child([] { _exit(setuid(kNobody) == 0 ? 0 : 1); });
    if (geteuid() != 0 || child.Wait() != 0) GTEST_SKIP() << "this process may not change its user";
  }
  // Returns the exit status of a child that runs `function` as another user.
  static int RunAsNobody(const std::function<void()>& function) {
    ChildProcess child([&] {
      alarm(60);
      ASSERT_EQ(setuid(kNobody), 0);
      function();
    });
    return child.Wait();
  }
  Result<Id128> Probe(bool any_user) const {
    return ProbeLocal({.path = path_, .wanted_address = {}, .any_user = any_user, .limits = {}}, kLong);
  }
};

TEST_F(LocalUsersTest, AServerForAnyUserAcceptsAnotherOne) {
  StartServer({.path = {}, .same_user_only = false});
  EXPECT_EQ(
      RunAsNobody([&] { EXPECT_THAT(Probe(/*any_user=*/true), test::IsOkAndHolds(handler_->life_id())); }),
      0);
}

TEST_F(LocalUsersTest, AServerForItsOwnUserRefusesAnotherOneThatReachesItsSocket) {
  StartServer();
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(RunAsNobody([&] {
              EXPECT_THAT(Probe(/*any_user=*/true).status(),
                          StatusIs(StatusCode::kPermissionDenied,
                                   AllOf(HasSubstr("own user only (0, not 65534)"), HasSubstr("any user"))));
            }),
            0);
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong})) << "its own user may still connect";
}

TEST_F(LocalUsersTest, ASocketThatOnlyItsOwnerMayOpen) {
  StartServer();
  EXPECT_EQ(RunAsNobody([&] {
              EXPECT_THAT(Probe(/*any_user=*/true).status(),
                          StatusIs(StatusCode::kPermissionDenied, HasSubstr("belongs to another user")));
            }),
            0);
}

TEST_F(LocalUsersTest, AClientRefusesAServerOfAnotherUserThatItFoundByItsPort) {
  StartServer({.path = {}, .same_user_only = false});
  EXPECT_EQ(RunAsNobody([&] {
              EXPECT_THAT(
                  Probe(/*any_user=*/false).status(),
                  StatusIs(StatusCode::kPermissionDenied, HasSubstr("runs as another user (0, not 65534)")));
            }),
            0);
}

}  // namespace
}  // namespace reverb::internal
