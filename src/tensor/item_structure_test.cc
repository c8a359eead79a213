#include "reverb/item_structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "testing/status_matchers.h"

namespace reverb {
namespace {

using test::StatusIs;
using ::testing::HasSubstr;

Signature Nest() {
  const Signature pair = Signature::Tuple({Signature(), Signature()}).value();
  return Signature::Dict({{"b", pair}, {"a", Signature()}}).value();
}

TEST(ItemStructureTest, IsASignatureWithoutSpecs) {
  const ItemStructure structure = ItemStructure::Create(Nest()).value();
  EXPECT_TRUE(structure);
  EXPECT_EQ(structure.encoded(), EncodeSignature(Nest()));
  const ItemStructure decoded = ItemStructure::Decode(structure.encoded()).value();
  EXPECT_EQ(decoded, structure);
  EXPECT_FALSE(decoded.IsCopyOf(structure));
  EXPECT_TRUE(ItemStructure(decoded).IsCopyOf(decoded));
  EXPECT_FALSE(decoded == ItemStructure());
  EXPECT_FALSE(ItemStructure());
  const Signature leaf = Signature::Leaf({.name = "x", .dtype = DType::kInt64, .shape = Shape({})}).value();
  EXPECT_THAT(ItemStructure::Create(Signature::List({leaf}).value()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("must have None")));
}

TEST(ItemStructureTest, IsBounded) {
  std::vector<Signature::Field> fields;
  for (int i = 0; i < 100; ++i) fields.emplace_back(std::string(1'000, 'x') + std::to_string(i), Signature());
  const Signature large = Signature::Dict(fields).value();
  EXPECT_THAT(ItemStructure::Create(large), StatusIs(StatusCode::kResourceExhausted, HasSubstr("65536")));
  EXPECT_THAT(ItemStructure::Decode(EncodeSignature(large)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("65536")));
}

TEST(ItemStructureTest, OtherBytesAreRefused) {
  const std::string good = EncodeSignature(Nest());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THAT(ItemStructure::Decode(std::string_view(good).substr(0, length)),
                StatusIs(StatusCode::kDataLoss));
  }
  EXPECT_THAT(ItemStructure::Decode(good + "x"), StatusIs(StatusCode::kDataLoss));
  // Nested lists of one element, deeper than the limit.
  std::string deep = "\x01";
  for (int i = 0; i < 30'000; ++i) deep += "\x02\x01";
  deep += '\0';
  EXPECT_THAT(ItemStructure::Decode(deep), StatusIs(StatusCode::kDataLoss));
  const Signature leaf = Signature::Leaf({.name = "x", .dtype = DType::kInt64, .shape = Shape({})}).value();
  EXPECT_THAT(ItemStructure::Decode(EncodeSignature(leaf)), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb
