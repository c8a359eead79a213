// make_corpus.cc — writes the seeds of the fuzz targets: make_corpus FOLDER fills FOLDER/chunk,
// FOLDER/local_frame, FOLDER/row_checkpoint, FOLDER/signature and FOLDER/wire. Writes the same bytes on every run.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/row_format.h"
#include "core/rows/row_state.h"
#include "reverb/signature.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"
#include "testing/rows.h"
#include "transport/local/frame.h"
#include "transport/wire.h"
#include "transport/wire_calls.h"
#include "transport/wire_testing.h"

namespace {

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

bool Write(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return out.flush().good();
}

// Returns rows that change slowly, so that every codec compresses them.
std::vector<uint8_t> Rows(size_t row_bytes, uint32_t rows, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<uint8_t> row(row_bytes, 17);
  std::vector<uint8_t> all;
  for (uint32_t i = 0; i < rows; ++i) {
    for (size_t k = 0; row_bytes > 0 && k < row_bytes / 64 + 1; ++k)
      row[rng() % row_bytes] ^= static_cast<uint8_t>(rng());
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

struct Spec {
  DType dtype;
  std::vector<uint32_t> shape;
  CodecPolicy policy;
};

// Encodes a chunk as chunk_fuzz.cc reads it.
std::string Chunk(const std::vector<Spec>& specs, uint32_t rows) {
  ChunkHeader header;
  header.episode_id = 42;
  header.first_step = 7;
  header.last_step = 6 + rows;
  header.rows = rows;
  std::vector<uint8_t> payload;
  for (const Spec& spec : specs) {
    ColumnEncoder encoder(spec.dtype, spec.shape, spec.policy);
    const uint64_t elements = NumElements(spec.shape);
    if (spec.dtype == DType::kString) {
      std::vector<std::string> owned;
      for (uint64_t i = 0; i < elements * rows; ++i)
        owned.emplace_back(i % 9, static_cast<char>('a' + i % 3));
      const std::vector<std::string_view> views(owned.begin(), owned.end());
      header.columns.push_back(encoder.EncodeStrings(views, rows, &payload).value());
    } else {
      const std::vector<uint8_t> raw = Rows(elements * ItemSize(spec.dtype), rows, 1);
      header.columns.push_back(encoder.Encode(raw, rows, &payload).value());
    }
  }
  std::string encoded;
  EncodeChunkHeader(header, &encoded);
  const auto size = static_cast<uint16_t>(encoded.size());
  std::string out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  out += encoded;
  out.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  return out;
}

bool WriteChunks(const std::filesystem::path& folder) {
  bool ok = true;
  const std::pair<const char*, CodecPolicy> policies[] = {{"auto", CodecPolicy::kAuto},
                                                          {"none", CodecPolicy::kNone},
                                                          {"lz4", CodecPolicy::kLz4},
                                                          {"zstd", CodecPolicy::kZstd},
                                                          {"snappy", CodecPolicy::kSnappy}};
  for (const auto& [name, policy] : policies) {
    const std::string prefix = std::string(name) + "_";
    ok &= Write(folder / (prefix + "frame"), Chunk({{DType::kUint8, {20, 20}, policy}}, 4));
    ok &= Write(folder / (prefix + "string"), Chunk({{DType::kString, {2}, policy}}, 40));
    ok &= Write(folder / (prefix + "mixed"), Chunk({{DType::kInt32, {5}, policy},
                                                    {DType::kFloat32, {}, policy},
                                                    {DType::kBool, {0, 3}, policy},
                                                    {DType::kInt64, {2, 3}, policy},
                                                    {DType::kString, {}, policy}},
                                                   20));
    if (policy != CodecPolicy::kNone) {  // several blocks, yet few bytes
      ok &= Write(folder / (prefix + "blocks"), Chunk({{DType::kUint16, {6000}, policy}}, 12));
    }
  }
  for (DType dtype : AllDTypes()) {
    ok &= Write(folder / ("dtype_" + std::string(DTypeName(dtype))),
                Chunk({{dtype, {3}, CodecPolicy::kLz4}}, 30));
  }
  std::string damaged = Chunk({{DType::kUint8, {100}, CodecPolicy::kLz4}}, 10);
  ok &= Write(folder / "cut", std::string_view(damaged).substr(0, damaged.size() - 9));
  damaged[damaged.size() - 20] ^= 0x55;
  ok &= Write(folder / "flipped", damaged);
  return ok;
}

bool WriteSignatures(const std::filesystem::path& folder) {
  const auto leaf = [](std::string name, DType dtype, Shape shape) {
    return Signature::Leaf({std::move(name), dtype, std::move(shape)}).value();
  };
  const Signature scalar = leaf("", DType::kFloat32, {});
  const Signature frame = leaf("pixels", DType::kUint8, {84, 84, -1});
  const Signature step =
      Signature::NamedTuple("Step", {{"reward", scalar}, {"discount", scalar}, {"observation", frame}})
          .value();
  const Signature dict =
      Signature::Dict({{"action", leaf("", DType::kInt32, {})}, {"step", step}, {"extras", Signature()}})
          .value();
  Signature deep = scalar;
  while (deep.depth() < Signature::kMaxDepth) deep = Signature::Tuple({deep}).value();
  bool ok = Write(folder / "none", EncodeSignature(Signature()));
  ok &= Write(folder / "scalar", EncodeSignature(scalar));
  ok &= Write(folder / "unknown_rank", EncodeSignature(leaf("x", DType::kString, Shape::UnknownRank())));
  ok &= Write(folder / "namedtuple", EncodeSignature(step));
  ok &= Write(folder / "dict", EncodeSignature(dict));
  ok &= Write(folder / "list", EncodeSignature(Signature::List({dict, step, frame}).value()));
  ok &= Write(folder / "empty", EncodeSignature(Signature::List({}).value()));
  ok &= Write(folder / "deep", EncodeSignature(deep));
  // One level more than allowed.
  ok &= Write(folder / "too_deep", std::string("\x01\x03\x01", 3) + EncodeSignature(deep).substr(1));
  ok &= Write(folder / "cut", EncodeSignature(dict).substr(0, 20));
  Tensor minimum = Tensor::Allocate(DType::kUint8, {}).value();
  Tensor maximum = Tensor::Allocate(DType::kUint8, {2}).value();
  *minimum.data() = 0;
  maximum.data()[0] = maximum.data()[1] = 255;
  const Signature bounded =
      Signature::Leaf({"x", DType::kUint8, {2}}, {std::move(minimum), std::move(maximum)}).value();
  ok &= Write(folder / "bounded", EncodeSignature(bounded));
  return ok;
}

// Encodes messages as wire_fuzz.cc reads them.
bool WriteMessages(const std::filesystem::path& folder) {
  const auto seed = [](int type, int step, const std::string& bytes) {
    return std::string{static_cast<char>(type), static_cast<char>(step)} + bytes;
  };
  const auto with_length = [](const WireMessage& message) {
    const std::string bytes = message.Flatten();
    return std::string{static_cast<char>(bytes.size() & 0xff), static_cast<char>(bytes.size() >> 8)} + bytes;
  };
  bool ok = true;
  const std::pair<const char*, CodecPolicy> policies[] = {
      {"raw", CodecPolicy::kNone}, {"lz4", CodecPolicy::kLz4}, {"zstd", CodecPolicy::kZstd}};
  for (const auto& [name, policy] : policies) {
    Random random(1);
    const std::vector<test::ColumnKind> kinds = {{DType::kUint8, {40}, policy},
                                                 {DType::kString, {}, policy},
                                                 {DType::kInt32, {}, policy},
                                                 {DType::kBool, {0}, policy}};
    std::vector<ChunkRef> chunks;
    for (uint64_t id = 1; id <= 3; ++id) chunks.push_back(test::MakeChunk(id, kinds, 8, &random));
    const std::vector<Sample> samples = test::RandomSamples(chunks, {0, 1, 2, 3, 0}, 3, &random);
    const Signature nest = Signature::Dict({{"x", {}}, {"y", Signature::Tuple({{}, {}}).value()}}).value();
    const ItemStructure structure = ItemStructure::Create(nest).value();
    InsertEncoder encoder;
    std::string stream;
    for (uint64_t i = 0; i < samples.size(); ++i) {
      InsertMessage message;
      for (uint64_t k = 1; k <= 2; ++k) {
        message.items.push_back({.number = 2 * i + k,
                                 .key = i,
                                 .table = "t",
                                 .priority = 1,
                                 .trajectory = samples[i].trajectory,
                                 .structure = k == 1 ? structure : ItemStructure()});
      }
      if (i == 1) message.forget_chunks = {1, 2};
      stream += with_length(encoder.Encode(message));
    }
    ok &= Write(folder / (std::string("insert_") + name), seed(0, 0, stream));
    const SampleReply reply{
        .welcome = test::ExampleWelcome(), .request_id = 1, .samples = samples, .end = Status()};
    ok &= Write(folder / (std::string("sample_") + name), seed(1, 0, EncodeSampleReply(reply).Flatten()));
    if (policy == CodecPolicy::kNone) {
      std::vector<ChunkRef> many;
      for (uint64_t id = 1; id <= 50; ++id) many.push_back(test::MakeChunk(id, kinds, 8, &random));
      const SampleReply even{.request_id = 1,
                             .samples = test::UniformBatch(many, {0, 2, 3}, {1, 2, 1}, 4, &random),
                             .shared_columns = true};
      ok &= Write(folder / "sample_even", seed(1, 0, EncodeSampleReply(even).Flatten()));
    }
    WireMessage sealed = EncodeSampleReply(reply);
    sealed.Seal(0);
    ok &= Write(folder / (std::string("sealed_") + name), seed(13, 0, sealed.Flatten()));
    std::string parts;
    for (const WireMessage& part : SplitIntoParts(EncodeSampleReply(reply))) parts += with_length(part);
    ok &= Write(folder / (std::string("parts_") + name), seed(12, 0, parts));
    ok &= Write(folder / (std::string("inspect_") + name),
                seed(2, 100, EncodeInspectReply({.next_cursor = 1, .items = samples}).Flatten()));
  }
  ok &= Write(folder / "insert_hello", seed(3, 1, EncodeInsertHello(test::ExampleHello()).Flatten()));
  ok &= Write(folder / "insert_reply", seed(4, 3, EncodeInsertReply(test::Filled<InsertReply>()).Flatten()));
  ok &= Write(folder / "sample_request",
              seed(5, 0, EncodeSampleRequest(test::ExampleSampleRequest()).Flatten()));
  ok &= Write(folder / "mutate", seed(6, 5, EncodeMutateRequest(test::Filled<MutateRequest>()).Flatten()));
  ok &= Write(folder / "info", seed(7, 0, EncodeServerInfo(test::Filled<ServerInfo>()).Flatten()));
  ok &= Write(folder / "inspect_request",
              seed(8, 0, EncodeInspectRequest(test::Filled<InspectRequest>()).Flatten()));
  ok &= Write(folder / "rate_limiter",
              seed(9, 0, EncodeSetRateLimiterRequest(test::Filled<SetRateLimiterRequest>()).Flatten()));
  ok &= Write(folder / "create_table",
              seed(14, 0, EncodeCreateTableRequest(test::Filled<CreateTableRequest>()).Flatten()));
  ok &= Write(folder / "change_table",
              seed(15, 0, EncodeChangeTableRequest(test::Filled<ChangeTableRequest>()).Flatten()));
  ok &= Write(folder / "settle_leases",
              seed(16, 0, EncodeSettleLeasesRequest(test::Filled<SettleLeasesRequest>()).Flatten()));
  ok &= Write(folder / "lease_outcome",
              seed(17, 0, EncodeLeaseOutcome(test::Filled<LeaseOutcome>()).Flatten()));
  RowsRequest rows{.call = {.verb = RowsVerb::kPut, .table = "t", .write = {.columns = {"x"}}},
                   .rows = {test::MakeRow("a", {3}, "g", {{"reward", 0.5}})}};
  ok &= Write(folder / "rows_request", seed(18, 0, EncodeRowsRequest(rows).Flatten()));
  RowsReply rows_reply{.result = {.columns = {"x"}, .lease_id = 3}, .rows_with_data = 1};
  rows_reply.rows.push_back({.key = "a", .num_segments = {1}, .segments = {{.chunk = rows.rows[0].chunk}}});
  ok &= Write(folder / "rows_reply", seed(19, 0, EncodeRowsReply(rows_reply).Flatten()));
  const CallMessage call{.method = 3,
                         .request = EncodeMutateRequest(test::Filled<MutateRequest>()).Flatten()};
  ok &= Write(folder / "call_request", seed(20, 0, EncodeCallRequest(call).Flatten()));
  const CallOutcome failed{.status = Status(StatusCode::kNotFound, "no table", Detail::kMemoryFull),
                           .response = "abc"};
  ok &= Write(folder / "call_reply", seed(21, 3, EncodeCallReply(failed).Flatten()));
  ok &= Write(folder / "reset", seed(10, 0, EncodeResetRequest("t").Flatten()));
  ok &= Write(folder / "checkpoint", seed(11, 0, EncodeCheckpointReply("/a").Flatten()));
  return ok;
}

// Encodes frames as local_frame_fuzz.cc reads them.
bool WriteFrames(const std::filesystem::path& folder) {
  const auto bytes_of = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto flat = [](const OutgoingFrame& frame) {
    std::string bytes = frame.head;
    for (const Buffer& part : frame.parts)
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return bytes;
  };
  const LocalIdentity identity{.boot_id = "boot", .network_namespace = 1, .process_id = 2};
  Random random(1);
  const ChunkRef chunk = test::MakeChunk(1, {{DType::kUint8, {40}, CodecPolicy::kNone}}, 8, &random);
  const SampleReply reply{
      .request_id = 1, .samples = test::UniformBatch({chunk}, {0}, {1}, 4, &random), .shared_columns = true};
  const std::string message = EncodeSampleReply(reply).Flatten();
  InsertMessage insert;
  insert.items.push_back(
      {.number = 1, .key = 1, .table = "t", .priority = 1, .trajectory = reply.samples[0].trajectory});
  FrameHeader header;
  header.kind = FrameKind::kMessage;
  header.number = 1;
  header.inline_bytes = message.size();
  const std::string inline_message = bytes_of(header) + message;
  // The same message from its position in the peer's memory, which begins with the bytes of the socket.
  header.body = MakePlace(0, sizeof header);
  const std::string in_body = bytes_of(header) + message;
  // The payload is the end of the message.
  header.body = kNoBody;
  header.num_references = 1;
  header.inline_bytes = message.size() - 100;
  const FrameReference reference{
      .at = static_cast<uint32_t>(message.size() - 100),
      .length = 100,
      .place = MakePlace(0, sizeof header + sizeof reference + message.size() - 100)};
  const std::string by_reference = bytes_of(header) + bytes_of(reference) + message;
  FrameHeader lease;
  lease.kind = FrameKind::kLease;
  lease.num_references = 1;
  lease.number = 3;
  const FrameReference word{.at = 0, .length = 8, .place = 0};
  const std::string client(1, '\0'), server(1, '\1'), slow(1, '\2');
  bool ok = Write(
      folder / "welcome",
      client + flat(MakeFrame(FrameKind::kGreeting,
                              EncodeLocalWelcome({.identity = identity, .max_pinned_bytes = 1 << 20}))));
  ok &= Write(
      folder / "hello",
      server + flat(MakeFrame(FrameKind::kGreeting,
                              EncodeLocalHello({.identity = identity, .wanted_address = "localhost:1"}))));
  ok &= Write(folder / "inline", client + inline_message);
  ok &= Write(folder / "slow", slow + inline_message + inline_message);
  ok &= Write(folder / "body", client + in_body);
  ok &= Write(folder / "reference", client + by_reference);
  ok &= Write(folder / "lease", client + bytes_of(lease) + bytes_of(word));
  ok &= Write(folder / "return", server + flat(MakeFrame(FrameKind::kReturn, 1)));
  ok &=
      Write(folder / "insert", server + flat(MakeFrame(FrameKind::kMessage, InsertEncoder().Encode(insert))));
  ok &= Write(folder / "cut", client + in_body.substr(0, sizeof header - 3));
  return ok;
}

// Makes saved row tables as row_checkpoint_fuzz.cc reads them.
bool WriteRowTables(const std::filesystem::path& folder) {
  for (const int64_t group_size : {0, 2}) {
    const RowTableOptions options{.name = "rows",
                                  .max_rows = 10,
                                  .group_size = group_size,
                                  .consumers = {"logprob", "train"},
                                  .staleness = StalenessOptions{.max_lag = 1, .batch = 4},
                                  .order = RowOrder::kReady};
    const auto state = RowState::Create(options).value();
    RowEffects effects;
    for (const char* const key : {"a", "b", "c", "d"}) {
      RowWrite row =
          test::MakeRow(key, {3}, group_size > 0 ? (*key < 'c' ? "g" : "h") : "",
                        {{"reward", 0.5}, {"done", true}, {"step", int64_t{7}}, {"split", std::string("x")}});
      const RowWriteMode mode{.columns = {"tokens"}, .open = *key == 'd'};
      const auto write = state->Prepare(mode, {&row, 1}).value();
      if (!state->Store(write, &row, &effects).ok()) return false;
    }
    const RowClaim claim{.consumer = "train", .count = 2, .needs = {"tokens"}};
    if (!state->CheckClaim(claim).ok() || !state->Claim(claim).ok()) return false;
    const std::string gone[] = {"b"};
    state->Delete(gone, &effects);
    state->SetUserState(std::make_shared<const std::string>("state"));
    const auto snapshot = std::make_unique<RowTableSnapshot>(state->size());
  state->Capture(snapshot.get());
    std::string table;
    EncodeRowTable(snapshot->table(), &table);
    std::string bytes = {static_cast<char>(table.size() & 255), static_cast<char>(table.size() >> 8)};
    bytes += table;
    uint32_t next_slot = 0;
    for (size_t i = 0; i < snapshot->num_rows(); ++i) {
      const SavedRow row = snapshot->row(i);
      const std::vector<ChunkPlace> places(row.parts.size());
      EncodeSavedRow(row, next_slot, std::vector<uint16_t>{1, 2, 3, 4}, places, &bytes);
      next_slot = row.slot + 1;
    }
    if (!Write(folder / (group_size > 0 ? "groups" : "rows"), bytes)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::error_code error;
  std::filesystem::create_directories(folder / "chunk", error);
  std::filesystem::create_directories(folder / "local_frame", error);
  std::filesystem::create_directories(folder / "row_checkpoint", error);
  std::filesystem::create_directories(folder / "signature", error);
  std::filesystem::create_directories(folder / "wire", error);
  if (!WriteChunks(folder / "chunk") || !WriteSignatures(folder / "signature") ||
      !WriteMessages(folder / "wire") || !WriteFrames(folder / "local_frame") ||
      !WriteRowTables(folder / "row_checkpoint")) {
    std::fprintf(stderr, "%s: cannot be written to\n", argv[1]);
    return 1;
  }
  return 0;
}
