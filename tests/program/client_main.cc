// A client for the tests of the program, in place of actors and learners.
//
//   program_client insert ADDRESS TABLE N    N items of known values, priorities 0, 1, 2, …
//   program_client insert_named ADDRESS TABLE N    the same, with the names a to f
//   program_client sample ADDRESS TABLE N    N samples, without a timeout
//
// Prints "done" at the end. Its client name is "test insert", "test sample" etc.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "reverb/client.h"

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string verb = argv[1];
  const reverb::Result<reverb::Client> client = reverb::Client::Connect(argv[2], {.name = "test " + verb});
  Status status = client.status();
  if (status.ok()) {
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
