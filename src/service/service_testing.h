// service_testing.h — a Service with fake clients, which a test controls.
#ifndef REVERB_SERVICE_SERVICE_TESTING_H_
#define REVERB_SERVICE_SERVICE_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "service/service.h"
#include "testing/chunks.h"
#include "transport/transport.h"

namespace reverb::internal {

// Records replies. `ready` is the result of Reply().
struct FakeInsertPeer final : InsertPeer {
  int reads = 0;
  bool ready = true;
  std::string from;  // the client's address; empty: this process
  std::vector<InsertReply> replies;
  std::optional<Status> end;
  std::string address() const override { return from; }
  void ReadNext() override { ++reads; }
  bool Reply(InsertReply reply) override {
    replies.push_back(std::move(reply));
    return ready;
  }
  void End(Status status) override { end = std::move(status); }
  uint64_t confirmed() const { return replies.back().confirmed_through; }
};

struct FakeSamplePeer final : SamplePeer {
  bool by_reference = false;
  int reads = 0;
  bool ready = true;
  uint64_t bytes_per_sample = 100;
  std::string from;  // the client's address; empty: this process
  std::vector<SampleReply> replies;
  std::optional<Status> end;
  std::string address() const override { return from; }
  bool sends_references() const override { return by_reference; }
  void ReadNext() override { ++reads; }
  Sent Reply(SampleReply reply) override {
    const uint64_t bytes = reply.samples.size() * bytes_per_sample;
    replies.push_back(std::move(reply));
    return {bytes, ready};
  }
  void End(Status status) override { end = std::move(status); }
  size_t samples() const {
    size_t count = 0;
    for (const SampleReply& reply : replies) count += reply.samples.size();
    return count;
  }
};

class ServiceTest : public ::testing::Test {
 protected:
  void Create(std::vector<TableOptions> tables, ServiceLimits limits = {}) {
    Service::Options options;
    for (TableOptions& table : tables) {
      options.tables.push_back(ConcurrentTable::Create(table, {.store = store_, .clock = &clock_}).value());
    }
    tables_ = options.tables;
    options.store = store_;
    options.limits = limits;
    options.clock = &clock_;
    service_ = Service::Create(std::move(options)).value();
  }
  ~ServiceTest() override {
    if (service_) service_->Stop();
    for (auto& table : tables_) table->Close();
  }
  static Hello MakeHello(uint8_t writer) {
    Hello hello;
    hello.session_id.fill(writer);
    return hello;
  }
  Item MakeItem(uint64_t number, std::string table = "q") {
    return {.number = number,
            .key = number,
            .table = std::move(table),
            .priority = 1,
            .trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 1), 0, 1).value()};
  }
  InsertMessage MakeMessage(uint64_t first, uint64_t last) {
    InsertMessage message;
    for (uint64_t number = first; number <= last; ++number) message.items.push_back(MakeItem(number));
    return message;
  }

  ManualClock clock_;
  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, &clock_);
  std::vector<std::shared_ptr<ConcurrentTable>> tables_;
  std::shared_ptr<Service> service_;
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_SERVICE_TESTING_H_
