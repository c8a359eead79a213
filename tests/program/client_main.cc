// A client for the tests of the program, in place of actors and learners.
//
//   program_client insert ADDRESS TABLE N    N items of known values, priorities 0, 1, 2, …
//   program_client insert_named ADDRESS TABLE N    the same, with the names a to f
//   program_client sample ADDRESS TABLE N    N samples, without a timeout
//   program_client put_rows ADDRESS TABLE N    N rows with tags, in groups of two; the last one is open
//   program_client claim_rows ADDRESS TABLE N    claims N rows for "train", acknowledges the first, keeps the others
//   program_client wait_rows ADDRESS TABLE N    waits for N rows with the column "missing"
//
// Prints "done" at the end. Its client name is a further argument, or else "test insert", "test sample" etc.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "reverb/client.h"
#include "reverb/rows.h"

namespace {

using reverb::DType;
using reverb::Status;
using reverb::TensorView;

Status Insert(const reverb::Client& client, const std::string& table, int count,
              const reverb::ItemStructure& structure) {
  for (int i = 0; i < count; ++i) {
    const std::array<int64_t, 1> three = {3};
    const std::array<int64_t, 2> image_dims = {2, 2};
    const auto base = static_cast<float>(i);
    const std::array<float, 3> floats = {base, base + 0.5F, -base};
    const std::array<uint8_t, 4> image = {0, 1, 254, 255};
    const std::string_view word = "a\x1b[31m\"word\"\xc2\x9b\xff";  // must not reach a terminal unescaped
    const uint8_t flag = 1;
    const uint16_t half = 0x3e00;  // 1.5
    const int64_t number = INT64_MIN;
    const std::array<TensorView, 6> step = {{{DType::kFloat32, three, floats.data()},
                                             {DType::kUint8, image_dims, image.data()},
                                             {DType::kString, {}, &word},
                                             {DType::kBool, {}, &flag},
                                             {DType::kFloat16, {}, &half},
                                             {DType::kInt64, {}, &number}}};
    const std::array<reverb::Client::TablePriority, 1> tables = {{{table, static_cast<double>(i)}}};
    REVERB_RETURN_IF_ERROR(client.Insert(step, tables, {}, structure));
  }
  return Status::Ok();
}

Status PutRows(const reverb::Rows& rows, int count) {
  for (int i = 0; i < count; ++i) {
    const std::array<int64_t, 1> three = {3};
    const std::array<int64_t, 3> tokens = {i, i + 1, -1};
    const float reward = 0.5F;
    const std::string_view word = "a\x1b[31mword";  // must not reach a terminal unescaped
    reverb::NewRow row{.key = "k" + std::to_string(i), .group = "g" + std::to_string(i / 2)};
    row.tags = {{"reward", 0.25 * i}, {"split", std::string("math")}, {"done", true}, {"prompt", int64_t{i}}};
    row.values = {
        {DType::kInt64, three, tokens.data()}, {DType::kFloat32, {}, &reward}, {DType::kString, {}, &word}};
    const reverb::RowWriteMode mode{.columns = {"tokens", "reward", "text"}, .open = i + 1 == count};
    REVERB_RETURN_IF_ERROR(rows.Put(mode, {&row, 1}).status());
  }
  return Status::Ok();
}

Status UseRows(const reverb::Client& client, const std::string& verb, const std::string& table, int count) {
  REVERB_ASSIGN_OR_RETURN(const reverb::Rows rows, client.RowTable(table));
  if (verb == "put_rows") return PutRows(rows, count);
  reverb::RowClaim claim{.consumer = "train", .count = count, .whole_groups = false};
  if (verb == "wait_rows") claim.needs = {"missing"};
  REVERB_ASSIGN_OR_RETURN(const reverb::RowBatch batch, rows.Claim(claim));
  const std::string first[] = {batch.rows().front().key};
  return batch.Acknowledge(first, {}, "the state").status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  const std::string verb = argv[1];
  const reverb::Result<reverb::Client> client =
      reverb::Client::Connect(argv[2], {.name = argc == 6 ? argv[5] : "test " + verb});
  Status status = client.status();
  if (status.ok() && verb.ends_with("_rows")) {
    status = UseRows(*client, verb, argv[3], std::atoi(argv[4]));
  } else if (status.ok()) {
    reverb::ItemStructure structure;
    if (verb == "insert_named") {
      structure = reverb::ItemStructure::Named({"a", "b", "c", "d", "e", "f"}).value();
    }
    status = verb.starts_with("insert") ? Insert(*client, argv[3], std::atoi(argv[4]), structure)
                                        : client->Sample(argv[3], std::atoi(argv[4])).status();
  }
  std::printf("%s\n", status.ok() ? "done" : status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
