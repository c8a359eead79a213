#include "client/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "base/random.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

TEST(RingTest, AgreesWithADeque) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  Ring<int> ring;
  std::deque<int> model;
  for (int i = 0; i < 5000; ++i) {
    // Grows for a while, then shrinks.
    if (model.empty() || random.Below(10) < (i / 500 % 2 == 0 ? 7u : 3u)) {
      ring.push_back() = i;
      model.push_back(i);
    } else {
      ring.pop_front();
      model.pop_front();
    }
    ASSERT_EQ(ring.size(), model.size());
    if (model.empty()) continue;
    ASSERT_EQ(ring.front(), model.front());
    ASSERT_EQ(ring.back(), model.back());
    const size_t at = random.Below(model.size());
    ASSERT_EQ(ring[at], model[at]);
  }
}

TEST(RingTest, PoppedElementsKeepTheirMemory) {
  Ring<std::vector<int>> ring;
  for (int i = 0; i < 4; ++i) ring.push_back().assign(100, i);
  ring.pop_front();
  ring.push_back();
  EXPECT_GE(ring.back().capacity(), 100u);
}

}  // namespace
}  // namespace reverb::internal
