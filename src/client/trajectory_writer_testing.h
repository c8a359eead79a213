// trajectory_writer_testing.h — a fixture for tests of TrajectoryWriterImpl, which writes to a FakeSink.
#ifndef REVERB_CLIENT_TRAJECTORY_WRITER_TESTING_H_
#define REVERB_CLIENT_TRAJECTORY_WRITER_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "client/fake_sink_testing.h"
#include "client/trajectory_writer.h"

namespace reverb::internal {

// Options with chunks of a constant length.
inline TrajectoryWriterOptions ConstantChunks(int64_t chunk_length, int64_t keep) {
  return {.chunking = {.num_keep_alive_refs = keep, .max_chunk_length = chunk_length}, .seed = 1};
}

class TrajectoryWriterFixture : public ::testing::Test {
 protected:
  void Make(const TrajectoryWriterOptions& options) {
    writer_ = std::make_unique<TrajectoryWriterImpl>(options, std::make_unique<test::FakeSink>(&sink_));
  }
  // Appends a step of int64 scalars, without the columns that have no value.
  Status Step(const std::vector<std::optional<int64_t>>& values, bool partial = false) {
    std::vector<ColumnValue> given;
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (values[i]) given.push_back({i, test::Scalar(*values[i])});
    }
    return partial ? writer_->AppendPartial(given) : writer_->Append(given);
  }
  Status Item(const std::vector<std::vector<CellRange>>& columns, double priority = 1.0) {
    std::vector<ItemColumn> item;
    for (const auto& column : columns) item.push_back({.cells = column});
    return writer_->CreateItem("table", priority, item);
  }
  std::set<uint64_t> ChunksSent() const {
    std::set<uint64_t> ids;
    for (const internal::Item& item : sink_.items) {
      item.trajectory.ForEachChunk([&](const Chunk* chunk) { ids.insert(chunk->id()); });
    }
    return ids;
  }

  test::FakeSinkState sink_;
  std::unique_ptr<TrajectoryWriterImpl> writer_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_TRAJECTORY_WRITER_TESTING_H_
