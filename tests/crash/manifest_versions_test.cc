// Tests that manifests of earlier versions are read.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "checkpoint/format.h"
#include "reverb/signature.h"
#include "reverb/structured_value.h"
#include "tensor/byte_io.h"
#include "tensor/checksum.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;

// Returns the bytes without checksum of a manifest with one table and no writers, without the fields that
// version 3 added after a table's signature and at its end, the shard of version 4, the row tables of version 5 and
// max_bytes of version 6.
std::string BeforeVersion3(const Manifest& manifest) {
  constexpr size_t kWriters = 1, kNewFields = 5, kShardAndRowTables = 2, kChecksum = 8;
  std::string bytes = EncodeManifest(manifest);
  bytes.erase(bytes.size() - kChecksum - kShardAndRowTables, kShardAndRowTables);
  bytes.erase(bytes.size() - kChecksum - kWriters - kNewFields, kNewFields);
  bytes.resize(bytes.size() - kChecksum);
  const TableSettings& saved = manifest.tables[0].saved;
  std::string before_layout(reinterpret_cast<const char*>(&saved.rate_limiter.max_diff), sizeof(double));
  PutString(&before_layout, saved.signature);
  bytes.erase(bytes.find(before_layout) + before_layout.size(), 1);
  return bytes;
}

// Returns a manifest of version 1 with one table: version 1 has a string of user data after the signature.
std::string ManifestOfVersion1(const Signature& signature, const std::string& user_data) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  manifest.tables.emplace_back().saved.name = "t";
  const std::string& encoded = manifest.tables[0].saved.signature = EncodeSignature(signature);
  std::string bytes = BeforeVersion3(manifest);
  std::string field;
  PutString(&field, user_data);
  bytes.insert(bytes.find(encoded) + encoded.size(), field);
  bytes[8] = 1;
  PutFixed64(&bytes, Checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return bytes;
}

TEST(ManifestVersionsTest, UserDataOfVersion1BecomesBounds) {
  const TensorSpec spec{"mine", DType::kInt32, {3}};
  Signature::Bounds bounds{Tensor::Allocate(DType::kInt32, {}).value(),
                           Tensor::Allocate(DType::kInt32, {}).value()};
  *reinterpret_cast<int32_t*>(bounds.minimum.data()) = -1;
  *reinterpret_cast<int32_t*>(bounds.maximum.data()) = 7;
  const Signature plain = Signature::Leaf(spec).value();
  const Signature bounded = Signature::Leaf(spec, std::move(bounds)).value();
  const auto load = [&](const std::string& user_data) {
    Result<Manifest> manifest = DecodeManifest(ManifestOfVersion1(plain, user_data), "m");
    EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
    EXPECT_EQ(manifest->version, 1u);
    return DecodeSignature(manifest->tables[0].saved.signature).value();
  };
  EXPECT_EQ(load(EncodeStructuredValue(bounded)), bounded);
  EXPECT_EQ(load("anything else"), plain);
  EXPECT_EQ(load(EncodeStructuredValue(Signature::Leaf({"other", DType::kInt32, {3}}).value())), plain);
}

TEST(ManifestVersionsTest, Version1HasAStringThatIsSkipped) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  manifest.tables.emplace_back().saved.name = "t";
  manifest.tables[0].saved.signature =
      EncodeSignature(Signature::Leaf({"mine", DType::kFloat32, {3}}).value());
  const auto seal = [](std::string bytes) {
    PutFixed64(&bytes, Checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
    return bytes;
  };
  std::string bytes = BeforeVersion3(manifest);
  const std::string& signature = manifest.tables[0].saved.signature;
  bytes.insert(bytes.find(signature) + signature.size(), std::string("\x05user\0", 6));
  bytes[8] = 1;
  const auto decoded = DecodeManifest(seal(bytes), "m");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->tables[0].saved.signature, signature);
  bytes[8] = kManifestVersion + 1;
  EXPECT_THAT(DecodeManifest(seal(bytes), "m").status(), StatusIs(StatusCode::kFailedPrecondition));
}

TEST(ManifestVersionsTest, Version2HasNeitherLayoutNorAge) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  SavedTable& saved = manifest.tables.emplace_back().saved;
  saved.name = "t";
  saved.layout = LayoutPolicy::kAny;
  std::string bytes = BeforeVersion3(manifest);
  bytes[8] = 2;
  PutFixed64(&bytes, Checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  const auto decoded = DecodeManifest(bytes, "m");
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->version, 2u);
  EXPECT_EQ(decoded->tables[0].saved.layout, LayoutPolicy::kFirst);
  EXPECT_EQ(decoded->tables[0].saved.max_age_nanos, 0);
  EXPECT_FALSE(decoded->tables[0].saved.created_by_client);
}

TEST(ManifestVersionsTest, Version4HasNoRowTables) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  manifest.shard = 7;
  std::string bytes = EncodeManifest(manifest);
  bytes.resize(bytes.size() - 8 - 1);
  bytes[8] = 4;
  PutFixed64(&bytes, Checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  const Result<Manifest> decoded = DecodeManifest(bytes, "m");
  ASSERT_OK(decoded);
  EXPECT_EQ(decoded->version, 4u);
  EXPECT_EQ(decoded->shard, 7u);
  EXPECT_TRUE(decoded->row_tables.empty());
}

TEST(ManifestVersionsTest, Version5HasNoMaxBytes) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  SavedTable& saved = manifest.tables.emplace_back().saved;
  saved.name = "t";
  saved.max_bytes = 12;
  Result<Manifest> decoded = DecodeManifest(EncodeManifest(manifest), "m");
  ASSERT_OK(decoded);
  EXPECT_EQ(decoded->tables[0].saved.max_bytes, 12);
  EXPECT_TRUE(decoded->tables[0].saved.knows_max_bytes);
  constexpr size_t kMaxBytes = 1, kWritersShardAndRowTables = 3, kChecksum = 8;
  std::string bytes = EncodeManifest(manifest);
  bytes.resize(bytes.size() - kChecksum);
  bytes.erase(bytes.size() - kWritersShardAndRowTables - kMaxBytes, kMaxBytes);
  bytes[8] = 5;
  PutFixed64(&bytes, Checksum({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  decoded = DecodeManifest(bytes, "m");
  ASSERT_OK(decoded);
  EXPECT_EQ(decoded->tables[0].saved.max_bytes, 0);
  EXPECT_FALSE(decoded->tables[0].saved.knows_max_bytes);
  saved.max_bytes = -1;
  EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "m").status(), StatusIs(StatusCode::kDataLoss));
}

TEST(ManifestVersionsTest, MoreRowsThanBytesAreDamage) {
  Manifest manifest;
  manifest.slots_per_page = 256;
  manifest.row_tables.push_back({.name = "rows", .rows = 1'000'000, .state = {}, .pages = {{.size = 50}}});
  EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "m").status(), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb::internal
