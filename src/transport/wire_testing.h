// wire_testing.h — chunks, trajectories and messages for tests of the byte form.
#ifndef REVERB_TRANSPORT_WIRE_TESTING_H_
#define REVERB_TRANSPORT_WIRE_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tensor/chunk.h"
#include "tensor/column.h"
#include "tensor/trajectory.h"
#include "transport/messages.h"
#include "transport/wire.h"

namespace reverb::test {

struct ColumnKind {
  DType dtype = DType::kInt64;
  std::vector<uint32_t> row_shape = {};
  internal::CodecPolicy policy = internal::CodecPolicy::kNone;
};

// One of every sort: raw and compressed, rows small, large and empty, columns of several blocks, strings.
inline std::vector<ColumnKind> AllKinds() {
  using internal::CodecPolicy;
  return {{DType::kInt64, {}, CodecPolicy::kNone},       {DType::kFloat32, {3}, CodecPolicy::kNone},
          {DType::kUint8, {20, 20}, CodecPolicy::kLz4},  {DType::kString, {}, CodecPolicy::kNone},
          {DType::kString, {2}, CodecPolicy::kZstd},     {DType::kUint16, {6000}, CodecPolicy::kLz4},
          {DType::kFloat32, {600}, CodecPolicy::kNone},  {DType::kBool, {0, 3}, CodecPolicy::kNone},
          {DType::kInt32, {50}, CodecPolicy::kAuto},     {DType::kUint8, {9000}, CodecPolicy::kNone},
          {DType::kFloat64, {10}, CodecPolicy::kSnappy}, {DType::kBool, {}, CodecPolicy::kZstd}};
}

// Rows that change slowly, so that every codec has something to do.
inline internal::ChunkRef MakeChunk(uint64_t id, const std::vector<ColumnKind>& kinds, uint32_t rows,
                                    internal::Random* random) {
  internal::ChunkHeader header{.episode_id = random->Next(),
                               .first_step = -3,
                               .last_step = static_cast<int64_t>(rows) - 4,
                               .rows = rows};
  std::vector<uint8_t> payload;
  for (const ColumnKind& kind : kinds) {
    internal::ColumnEncoder encoder(kind.dtype, kind.row_shape, kind.policy);
    const uint64_t elements = internal::NumElements(kind.row_shape);
    if (kind.dtype == DType::kString) {
      std::vector<std::string> owned;
      for (uint64_t i = 0; i < elements * rows; ++i) {
        owned.emplace_back(random->Below(12), static_cast<char>('a' + random->Below(3)));
      }
      const std::vector<std::string_view> views(owned.begin(), owned.end());
      header.columns.push_back(encoder.EncodeStrings(views, rows, &payload).value());
      continue;
    }
    std::vector<uint8_t> row(elements * ItemSize(kind.dtype), static_cast<uint8_t>(random->Next()));
    std::vector<uint8_t> all;
    for (uint32_t i = 0; i < rows; ++i) {
      for (size_t k = 0; !row.empty() && k < row.size() / 50 + 2; ++k) {
        row[random->Below(row.size())] = static_cast<uint8_t>(random->Next());
      }
      all.insert(all.end(), row.begin(), row.end());
    }
    header.columns.push_back(encoder.Encode(all, rows, &payload).value());
  }
  return internal::Chunk::Copy(id, header, payload).value();
}

// Columns of the given kinds (by index into the chunks' columns), each of one to three slices.
inline internal::Trajectory RandomTrajectory(const std::vector<internal::ChunkRef>& chunks,
                                             const std::vector<uint32_t>& columns, internal::Random* random) {
  std::vector<internal::ColumnSpec> specs;
  for (const uint32_t column : columns) {
    internal::ColumnSpec& spec = specs.emplace_back();
    const uint64_t slices = 1 + random->Below(3);
    uint32_t rows = 0;
    for (uint64_t i = 0; i < slices; ++i) {
      const internal::ChunkRef& chunk = chunks[random->Below(chunks.size())];
      const auto offset = static_cast<uint32_t>(random->Below(chunk->header().rows()));
      const auto length = static_cast<uint32_t>(1 + random->Below(chunk->header().rows() - offset));
      spec.slices.push_back({chunk, column, offset, length});
      rows += length;
    }
    spec.squeeze = rows == 1 && random->Below(2) == 0;
  }
  return internal::Trajectory::Create(specs).value();
}

// Everything that a reader of a trajectory sees, as text.
inline std::string Contents(const internal::Trajectory& trajectory) {
  std::string all;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    const internal::ColumnView view = trajectory.column_view(c);
    all += "column " + std::string(DTypeName(view.dtype));
    for (uint32_t dim : view.row_shape) all += " " + std::to_string(dim);
    all += " rows " + std::to_string(trajectory.length(c)) + (trajectory.squeeze(c) ? " squeezed\n" : "\n");
    if (view.dtype == DType::kString) {
      std::vector<std::string> strings;
      if (!trajectory.ReadStrings(c, &strings).ok()) all += "cannot be read";
      for (const std::string& text : strings) all += std::to_string(text.size()) + ":" + text;
    } else {
      std::vector<uint8_t> bytes(static_cast<size_t>(trajectory.length(c)) * view.row_bytes());
      if (!trajectory.Read(c, bytes).ok()) all += "cannot be read";
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return all;
}

// The parts of a message as a receiver sees them.
inline std::vector<internal::ByteSlice> Slices(const internal::WireMessage& message) {
  std::vector<internal::ByteSlice> slices;
  for (const internal::Buffer& part : message.parts()) slices.push_back(part.span());
  return slices;
}
inline internal::ByteSlice SliceOf(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// --- Messages with something in every field ---

inline internal::Id128 ExampleId(uint8_t first) {
  internal::Id128 id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(first + i);
  return id;
}

inline internal::Hello ExampleHello() {
  return {.min_version = 1,
          .max_version = 3,
          .session_id = ExampleId(7),
          .client_name = "actor-17",
          .receive_window_bytes = uint64_t{1} << 40,
          .max_response_bytes = uint64_t{1} << 41};
}

inline internal::Welcome ExampleWelcome() {
  return {.version = 1,
          .server_life_id = ExampleId(100),
          .server_name = "reverb 0.1",
          .applied_through = 1'000'000'007,
          .limits = {.max_message_bytes = 1 << 20,
                     .max_chunk_bytes = 1 << 19,
                     .insert_window_bytes = 1 << 26,
                     .max_item_bytes = 1 << 27}};
}

inline internal::InsertReply ExampleInsertReply() {
  return {.welcome = ExampleWelcome(),
          .confirmed_through = 300,
          .rejections = {{299, Status::NotFound("table \"x\" is not here")},
                         {300, Status(StatusCode::kInvalidArgument, "priority", Detail::kInvalidPriority)}},
          .waiting = internal::WaitState{.table = "replay",
                                         .reason = WaitReason::kTooManyInserts,
                                         .waited = internal::Duration(1'500'000'000),
                                         .text = "cursor 9 of 8"}};
}

inline internal::SampleStreamMessage ExampleSampleRequest() {
  return {.hello = ExampleHello(),
          .request = {.request_id = 5,
                      .table = "replay",
                      .count = 1'000,
                      .timeout = internal::Duration(0),
                      .taken_bytes = 123'456'789,
                      .even_columns = true}};
}

inline internal::MutateRequest ExampleMutateRequest() {
  return {.table = "replay",
          .updates = {{.key = 1, .priority = 2.5}, {.key = ~uint64_t{0}, .priority = -0.0}, {}},
          .deletes = {3, 0, uint64_t{1} << 63}};
}

inline internal::SetRateLimiterRequest ExampleSetRateLimiter() {
  return {
      .table = "replay",
      .options = {.samples_per_insert = 4.5, .min_size_to_sample = 10, .min_diff = -20, .max_diff = 1e300}};
}

inline internal::InspectRequest ExampleInspectRequest() {
  return {.table = "replay", .cursor = 1'000, .count = 50};
}

inline ServerInfo ExampleServerInfo() {
  TableInfo table;
  table.name = "replay";
  table.sampler = SelectorOptions::Prioritized(0.8);
  table.remover = SelectorOptions::Fifo();
  table.max_size = 1'000'000;
  table.max_times_sampled = -1;
  table.rate_limiter = {.samples_per_insert = 2, .min_size_to_sample = 100, .min_diff = -5, .max_diff = 50};
  table.signature = std::string("\x01\x00signature", 11);
  int64_t next = 101;
  for (int64_t* value : {&table.current_size,
                         &table.num_episodes,
                         &table.num_deleted_episodes,
                         &table.num_unique_samples,
                         &table.counters.inserts,
                         &table.counters.samples,
                         &table.counters.deletes,
                         &table.referenced_bytes,
                         &table.evictions,
                         &table.expirations,
                         &table.explicit_deletes,
                         &table.updates,
                         &table.unknown_keys,
                         &table.waiting_inserts,
                         &table.waiting_samples,
                         &table.longest_wait_nanos,
                         &table.work_time.inserting_nanos,
                         &table.work_time.sampling_nanos,
                         &table.work_time.waiting_for_inserts_nanos,
                         &table.work_time.waiting_for_sampling_nanos,
                         &table.work_time.idle_nanos}) {
    *value = next++;
  }
  table.cursor =
      2.0 * static_cast<double>(table.counters.inserts) - static_cast<double>(table.counters.samples);
  table.inserts_per_second = 12.5;
  table.samples_per_second = 1e6;
  table.insert_wait_reason = WaitReason::kTooManyInserts;
  table.sample_wait_reason = WaitReason::kMinSize;
  for (int i = 1; i < kNumWaitReasons; ++i) table.waits[i] = {.count = i, .total_nanos = i * 1'000};
  table.closed = true;
  table.user_data = std::string("bounds\0and more", 15);
  table.structure = std::string("\x01\x02\x01\x00", 4);
  TableInfo plain;
  plain.name = "plain";
  plain.sampler = {.kind = SelectorOptions::Kind::kCustom, .priority_exponent = 0, .custom_name = "mine"};
  plain.remover = SelectorOptions::Lifo();
  plain.structure = "";  // which is not the same as none
  return {.server_life_id = ExampleId(1),
          .server_name = "reverb 0.1",
          .tables = {table, plain},
          .live_chunks = 3,
          .live_bytes = 4,
          .stored_bytes = 5,
          .max_bytes = 0,
          .now_nanos = 1'800'000'000'000'000'000,
          .started_nanos = 1'799'999'999'000'000'000,
          .waiters = {{.table = "replay",
                       .is_insert = true,
                       .reason = WaitReason::kTooManyInserts,
                       .waited_nanos = 7'000,
                       .count = 8,
                       .client_name = "actor-17",
                       .address = "192.0.2.1:1234"},
                      {.table = "plain", .client_name = {}, .address = {}}}};
}

inline internal::Sample SampleWithoutData(internal::Random* random) {
  return {.key = random->Next(),
          .priority = random->Unit(),
          .probability = random->Unit(),
          .table_size = static_cast<int64_t>(random->Below(1 << 20)),
          .inserted_at = static_cast<int64_t>(random->Next()),
          .times_sampled = static_cast<int32_t>(random->Below(100)),
          .rate_limited = random->Below(2) == 0,
          .trajectory = {}};
}

// Samples of the chunks given; like batches: every sample has the same columns.
inline std::vector<internal::Sample> RandomSamples(const std::vector<internal::ChunkRef>& chunks,
                                                   const std::vector<uint32_t>& columns, size_t count,
                                                   internal::Random* random) {
  std::vector<internal::Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    samples.push_back(SampleWithoutData(random));
    samples.back().trajectory = RandomTrajectory(chunks, columns, random);
  }
  return samples;
}

// A batch: samples of the same columns, lengths and shapes, each from a random chunk. `lengths`: rows of the
// columns, by position; those of one row are squeezed. REQUIRES: every chunk has so many rows.
inline std::vector<internal::Sample> EvenBatch(const std::vector<internal::ChunkRef>& chunks,
                                               const std::vector<uint32_t>& columns,
                                               const std::vector<uint32_t>& lengths, size_t count,
                                               internal::Random* random) {
  std::vector<internal::Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    std::vector<internal::ColumnSpec> specs(columns.size());
    for (size_t c = 0; c < columns.size(); ++c) {
      // Now and then in two slices, of different chunks perhaps.
      const uint32_t first = lengths[c] > 1 && random->Below(2) == 0 ? 1 : lengths[c];
      for (const uint32_t length : {first, lengths[c] - first}) {
        if (length == 0) continue;
        const internal::ChunkRef& chunk = chunks[random->Below(chunks.size())];
        const auto offset = static_cast<uint32_t>(random->Below(chunk->header().rows() - length + 1));
        specs[c].slices.push_back({chunk, columns[c], offset, length});
      }
      specs[c].squeeze = lengths[c] == 1;
    }
    samples.push_back(SampleWithoutData(random));
    samples.back().trajectory = internal::Trajectory::Create(specs).value();
  }
  return samples;
}

}  // namespace reverb::test

#endif  // REVERB_TRANSPORT_WIRE_TESTING_H_
