// transports.h — the transports that every conformance test runs over.
#ifndef REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_
#define REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_

#include <gtest/gtest.h>

#include <string>

namespace reverb::test {

enum class Transport { kInproc, kLocal, kGrpc };

inline std::string TransportName(const ::testing::TestParamInfo<Transport>& info) {
  switch (info.param) {
    case Transport::kInproc:
      return "inproc";
    case Transport::kLocal:
      return "local";
    default:
      return "grpc";
  }
}

#ifdef REVERB_TEST_NO_GRPC
#define REVERB_ALL_TRANSPORTS ::testing::Values(Transport::kInproc, Transport::kLocal)
#else
#define REVERB_ALL_TRANSPORTS ::testing::Values(Transport::kInproc, Transport::kLocal, Transport::kGrpc)
#endif

}  // namespace reverb::test

#endif  // REVERB_TESTS_CONFORMANCE_TRANSPORTS_H_
