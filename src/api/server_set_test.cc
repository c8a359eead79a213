// Tests what a set keeps; public_set_test.cc tests what clients see of it.
#include "api/server_set.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace reverb::internal {
namespace {

TEST(ServerSetTest, SamplersThatAreGoneAreForgotten) {
  const auto set = ServerSet::Create("", {"127.0.0.1:1", "127.0.0.1:2"}, nullptr, {}).value();
  std::vector<std::shared_ptr<SetSampler>> kept;
  for (int i = 0; i < 1000; ++i) {
    auto sampler = set->NewSampler({.table = "t"}).value();
    sampler->Close();
    if (i % 100 == 0) kept.push_back(std::move(sampler));
  }
  EXPECT_GE(set->num_tracked_samplers(), kept.size());
  EXPECT_LE(set->num_tracked_samplers(), 40u);
}

}  // namespace
}  // namespace reverb::internal
