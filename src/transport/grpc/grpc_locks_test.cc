#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_internal.h"

namespace reverb::internal {
namespace {

// A search for deadlocks ends the process at the second order. It would acquire a lock of the whole process for every lock
// of gRPC.
TEST(GrpcLocksTest, AbseilDoesNotSearchForDeadlocks) {
  ASSERT_OK(InitGrpc());
  absl::Mutex first, second;
  int orders = 0;
  {
    const absl::MutexLock outer(&first);
    const absl::MutexLock inner(&second);
    ++orders;
  }
  {
    const absl::MutexLock outer(&second);
    const absl::MutexLock inner(&first);
    ++orders;
  }
  EXPECT_EQ(orders, 2);
}

}  // namespace
}  // namespace reverb::internal
