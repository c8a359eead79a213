#include "service/row_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/chunk_store.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

class RowServiceTest : public ::testing::Test {
 protected:
  ~RowServiceTest() override { service_.Close(); }
  Result<RowsReply> Call(RowsRequest request) {
    std::optional<Result<RowsReply>> result;
    (void)service_.Start(std::move(request), [&](Result<RowsReply> reply) {
      result.emplace(std::move(reply));
      return true;
    });
    if (!result) return Status::Internal("the call waits");
    return *std::move(result);
  }

  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, RealClock());
  RowService service_{{.store = store_}};
};

// The client refuses a larger reply, which for a claim comes after the rows were leased.
TEST_F(RowServiceTest, RepliesOfCompressedRowsAreBoundedByTheirDecodedSize) {
  constexpr uint64_t kRows = 10;
  ASSERT_OK(service_.Create({.name = "rows", .consumers = {"learner"}}, /*exist_ok=*/false));
  RowsRequest put{.call = {.verb = RowsVerb::kPut, .table = "rows", .write = {.columns = {"x"}}}};
  for (uint64_t i = 0; i < kRows; ++i) {
    put.rows.push_back(
        {.key = std::to_string(i), .chunk = test::MakeCompressedChunk(store_.get(), uint32_t{64} << 20)});
  }
  ASSERT_OK(Call(std::move(put)).status());
  RowsCall claim{.verb = RowsVerb::kClaim, .table = "rows", .timeout = Duration(0)};
  claim.claim = {
      .consumer = "learner", .count = kRows, .needs = {"x"}, .select = {"x"}, .lease = std::chrono::hours(1)};
  Result<RowsReply> reply = Call({.call = std::move(claim)});
  ASSERT_OK(reply.status());
  ASSERT_EQ(reply->rows.size(), kRows);
  const WireLimits limits{.max_decoded_item_bytes = kDecodedBytesPerReply,
                          .max_decoded_reply_bytes = kDecodedBytesPerReply};
  // As a client does: reads the rows without data by their keys.
  uint64_t read = 0;
  for (int replies = 1;; ++replies) {
    const std::string message = EncodeRowsReply(*reply).Flatten();
    const ByteSlice slice(reinterpret_cast<const uint8_t*>(message.data()), message.size());
    ASSERT_OK(DecodeRowsReply({&slice, 1}, limits).status());
    EXPECT_EQ(reply->rows_with_data, std::min<uint64_t>(kRows - read, 4)) << "of 64 MiB each";
    read += reply->rows_with_data;
    ASSERT_LE(replies, 3);
    if (read == kRows) break;
    RowsCall get{.verb = RowsVerb::kGet, .table = "rows"};
    get.claim.select = {"x"};
    for (uint64_t i = read; i < kRows; ++i) get.keys.push_back(std::to_string(i));
    reply = Call({.call = std::move(get)});
    ASSERT_OK(reply.status());
  }
}

}  // namespace
}  // namespace reverb::internal
