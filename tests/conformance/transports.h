// transports.h — the transports that every conformance test runs over.
#ifndef REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_
#define REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_

#include <gtest/gtest.h>

#include <string>

namespace reverb::test {

enum class Transport { kInproc, kGrpc };

inline std::string TransportName(const ::testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kInproc ? "inproc" : "grpc";
}

#ifdef REVERB_TEST_INPROC_ONLY
#define REVERB_ALL_TRANSPORTS ::testing::Values(Transport::kInproc)
#else
#define REVERB_ALL_TRANSPORTS ::testing::Values(Transport::kInproc, Transport::kGrpc)
#endif

}  // namespace reverb::test

#endif  // REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_
