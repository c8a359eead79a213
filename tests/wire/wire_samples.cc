// wire_samples.cc — writes a message of every type for check_wire.py, and reads protobuf's encoding of it.
//
//   wire_samples write FOLDER   writes FOLDER/<message type>.<name>, and <message type>.filled.fields with the
//                               number, type and value of each field of a message that has a field list
//   wire_samples read FOLDER    reads the messages as serialized by protobuf, and compares
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "testing/rows.h"
#include "transport/wire.h"
#include "transport/wire_calls.h"
#include "transport/wire_testing.h"

namespace {

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

struct Case {
  std::string file;
  std::string bytes;
  // Decodes bytes and encodes them again, or describes the data of samples and items.
  std::function<std::string(ByteSlices)> normalize;
  std::string fields = {};  // one per line (test::Describe)
};

// Makes a message with a value in every field of its list.
template <typename Record, typename Encode, typename Decode>
Case FilledCase(const Encode& encode, const Decode& decode) {
  const Record record = test::Filled<Record>();
  return {std::string(kFields<Record>.message) + ".filled", encode(record).Flatten(),
          [=](ByteSlices s) {
            const Result<Record> result = decode(s, WireLimits());
            return result.ok() ? encode(*result).Flatten() : result.status().ToString();
          },
          test::Describe(record)};
}

template <typename T, typename Encode>
std::string Again(const Result<T>& result, const Encode& encode) {
  return result.ok() ? encode(*result).Flatten() : result.status().ToString();
}

std::string Describe(const std::vector<Sample>& samples) {
  std::string all;
  for (const Sample& sample : samples) {
    all += std::to_string(sample.key) + " " + std::to_string(sample.priority) + " " +
           std::to_string(sample.inserted_at) + "\n" + test::Contents(sample.trajectory);
  }
  return all;
}

RowsRequest ExampleRows() {
  RowsRequest request;
  request.call.verb = RowsVerb::kPut;
  request.call.table = "rollouts";
  request.call.write.columns = {"tokens", "reward"};
  request.rows = {test::MakeRow("a", {700, -1}, "g", {{"split", std::string("math")}, {"done", false}}),
                  test::MakeRow("b", {0, -1})};
  request.rows.push_back({.key = "c"});
  return request;
}

RowsReply ExampleRowsReply() {
  RowsReply reply;
  reply.result.lease_id = 5;
  reply.result.columns = {"tokens", "reward"};
  for (const RowWrite& row : ExampleRows().rows) {
    RowRecord& record = reply.rows.emplace_back();
    record.key = row.key;
    record.num_segments = {0, 0};
    if (!row.chunk) continue;
    record.num_segments = {1, 1};
    record.segments = {{.chunk = row.chunk, .chunk_column = 0}, {.chunk = row.chunk, .chunk_column = 1}};
  }
  reply.rows_with_data = reply.rows.size();
  return reply;
}

std::vector<Case> Cases() {
  Random random(11);
  std::vector<ChunkRef> chunks;
  for (uint64_t id = 1; id <= 3; ++id) chunks.push_back(test::MakeChunk(id, test::AllKinds(), 20, &random));
  const std::vector<Sample> samples =
      test::RandomSamples(chunks, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 4, &random);
  const ItemStructure structure = ItemStructure::Create(Signature::List({Signature()}).value()).value();
  InsertMessage insert;
  for (uint64_t i = 0; i < samples.size(); ++i) {
    insert.items.push_back({.number = i + 1,
                            .key = samples[i].key,
                            .table = i < 2 ? "first" : "second",
                            .priority = 0.25,
                            .trajectory = samples[i].trajectory,
                            .structure = i > 0 ? structure : ItemStructure()});
  }
  insert.forget_chunks = {1, 3};
  insert.heartbeat = true;
  const SampleReply reply{.welcome = test::ExampleWelcome(),
                          .request_id = 300,
                          .samples = samples,
                          .end = Status(StatusCode::kDeadlineExceeded, "late", Detail::kRateLimited),
                          .mass = TableMass{.is_weighted = true, .mass = 2.5, .size = 7}};
  const InspectReply inspect{.next_cursor = 12, .items = samples};
  const ChunkRef raw = test::MakeChunk(99, {{DType::kInt64}, {DType::kFloat32, {3}}}, 1'000, &random);
  const SampleReply shared{.request_id = 300,
                           .samples = test::UniformBatch({raw}, {0, 1}, {1, 1}, 4, &random),
                           .end = Status(),
                           .shared_columns = true};
  const auto again_samples = [](ByteSlices s) {
    const auto got = DecodeSampleReply(s);
    if (!got.ok()) return got.status().ToString();
    const std::string mass =
        got->mass ? std::to_string(got->mass->mass) + " of " + std::to_string(got->mass->size) : "";
    return got->end->ToString() + mass + Describe(got->samples);
  };
  return {
      {"InsertRequest.hello", EncodeInsertHello(test::ExampleHello()).Flatten(),
       [](ByteSlices s) { return Again(DecodeInsertHello(s), EncodeInsertHello); }},
      {"InsertRequest.items", InsertEncoder().Encode(insert).Flatten(),
       [](ByteSlices s) {
         InsertDecoder decoder([](const ChunkHeader& header, uint8_t** payload) {
           return Chunk::Uninitialized(1, header, payload);
         });
         const auto message = decoder.Decode(s);
         if (!message.ok()) return message.status().ToString();
         std::string all;
         for (const Item& item : message->items) {
           all += std::to_string(item.number) + item.table + std::string(item.structure.encoded()) +
                  test::Contents(item.trajectory);
         }
         return all;
       }},
      FilledCase<InsertReply>(EncodeInsertReply, DecodeInsertReply),
      FilledCase<SampleStreamMessage>(EncodeSampleRequest, DecodeSampleRequest),
      {"SampleResponse.all", EncodeSampleReply(reply).Flatten(), again_samples},
      {"SampleResponse.shared", EncodeSampleReply(shared).Flatten(), again_samples},
      {"InspectResponse.all", EncodeInspectReply(inspect).Flatten(),
       [](ByteSlices s) {
         const auto got = DecodeInspectReply(s);
         return got.ok() ? Describe(got->items) : got.status().ToString();
       }},
      FilledCase<Sample>([](const Sample& sample) { return EncodeFields(sample); }, DecodeFields<Sample>),
      FilledCase<InspectRequest>(EncodeInspectRequest, DecodeInspectRequest),
      FilledCase<MutateRequest>(EncodeMutateRequest, DecodeMutateRequest),
      FilledCase<SettleLeasesRequest>(EncodeSettleLeasesRequest, DecodeSettleLeasesRequest),
      FilledCase<LeaseOutcome>(EncodeLeaseOutcome, DecodeLeaseOutcome),
      FilledCase<SetRateLimiterRequest>(EncodeSetRateLimiterRequest, DecodeSetRateLimiterRequest),
      FilledCase<CreateTableRequest>(EncodeCreateTableRequest, DecodeCreateTableRequest),
      FilledCase<ChangeTableRequest>(EncodeChangeTableRequest, DecodeChangeTableRequest),
      FilledCase<ServerInfo>(EncodeServerInfo, DecodeServerInfo),
      FilledCase<RowsCall>([](const RowsCall& call) { return EncodeFields(call); }, DecodeFields<RowsCall>),
      FilledCase<RowsResult>([](const RowsResult& result) { return EncodeFields(result); },
                             DecodeFields<RowsResult>),
      FilledCase<RowHeader>([](const RowHeader& header) { return EncodeFields(header); },
                            DecodeFields<RowHeader>),
      {"RowsRequest.all", EncodeRowsRequest(ExampleRows()).Flatten(),
       [](ByteSlices s) {
         const auto make_chunk = [](const ChunkHeader& header, uint8_t** payload) {
           return Chunk::Uninitialized(1, header, payload);
         };
         const auto request = DecodeRowsRequest(s, make_chunk);
         if (!request.ok()) return request.status().ToString();
         std::string all = request->call.table;
         for (const RowWrite& row : request->rows) {
           all +=
               row.key + std::to_string(row.tags.size()) + std::to_string(row.chunk ? row.chunk->bytes() : 0);
         }
         return all;
       }},
      {"RowsResponse.all", EncodeRowsReply(ExampleRowsReply()).Flatten(),
       [](ByteSlices s) {
         const auto reply = DecodeRowsReply(s);
         if (!reply.ok()) return reply.status().ToString();
         std::string all = std::to_string(reply->result.lease_id);
         for (const RowRecord& row : reply->rows) {
           all += row.key;
           for (const RowSegment& segment : row.segments) all += std::to_string(segment.length());
         }
         return all;
       }},
      {"CallRequest.all", EncodeCallRequest({.method = 3, .request = "abc"}).Flatten(),
       [](ByteSlices s) { return Again(DecodeCallRequest(s), EncodeCallRequest); }},
      {"CallResponse.all",
       EncodeCallReply({.status = Status(StatusCode::kAborted, "so", Detail::kMemoryFull), .response = "abc"})
           .Flatten(),
       [](ByteSlices s) { return Again(DecodeCallReply(s), EncodeCallReply); }},
      {"RemoveTableRequest.all", EncodeRemoveTableRequest("replay").Flatten(),
       [](ByteSlices s) { return Again(DecodeRemoveTableRequest(s), EncodeRemoveTableRequest); }},
      {"ResetRequest.all", EncodeResetRequest("replay").Flatten(),
       [](ByteSlices s) { return Again(DecodeResetRequest(s), EncodeResetRequest); }},
      {"CheckpointResponse.all", EncodeCheckpointReply("/a/b").Flatten(),
       [](ByteSlices s) { return Again(DecodeCheckpointReply(s), EncodeCheckpointReply); }},
      {"Status.all", EncodeStatus(Status(StatusCode::kAborted, "so", Detail::kMemoryFull)).Flatten(),
       [](ByteSlices s) {
         Status status;
         const Status read = DecodeStatus(s, &status);
         return read.ok() ? status.ToString() : read.ToString();
       }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 3 ? argv[1] : "";
  if (verb != "write" && verb != "read") {
    std::fprintf(stderr, "usage: %s write|read FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[2];
  int failures = 0;
  for (const Case& c : Cases()) {
    if (verb == "write") {
      std::ofstream out(folder / c.file, std::ios::binary);
      out.write(c.bytes.data(), static_cast<std::streamsize>(c.bytes.size()));
      if (!out.flush().good()) ++failures;
      if (c.fields.empty()) continue;
      std::ofstream fields(folder / (c.file + ".fields"));
      fields << c.fields;
      if (!fields.flush().good()) ++failures;
      continue;
    }
    std::ifstream in(folder / c.file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const ByteSlice ours = test::SliceOf(c.bytes);
    const ByteSlice theirs = test::SliceOf(bytes);
    if (bytes.empty() || c.normalize({&ours, 1}) != c.normalize({&theirs, 1})) {
      std::fprintf(stderr, "%s: what protobuf wrote is read as another message\n", c.file.c_str());
      ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}
