#include "reverb/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "testing/status_matchers.h"

namespace reverb {
namespace {

using test::StatusIs;

Signature Leaf(std::string name, DType dtype, Shape shape) {
  return *Signature::Leaf({std::move(name), dtype, std::move(shape)});
}

Signature Example() {
  const Signature reward = Leaf("", DType::kFloat32, {});
  return *Signature::Dict({
      {"obs", *Signature::List({Leaf("pixels", DType::kUint8, {84, 84, -1}),
                                Leaf("", DType::kInt64, Shape::UnknownRank())})},
      {"step", *Signature::NamedTuple("Step", {{"reward", reward}, {"discount", reward}})},
      {"", *Signature::Tuple({Leaf("s", DType::kString, {0})})},
      {"action", Leaf("", DType::kInt32, {2})},
  });
}

std::vector<std::string> Names(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(SignatureTest, FlattensBySortedKeyAndDeclaredOrder) {
  const auto flat = Example().Flatten();
  ASSERT_OK(flat);
  EXPECT_THAT(Names(*flat),
              testing::ElementsAre("0/s", "action", "obs/0/pixels", "obs/1", "step/reward", "step/discount"));
  EXPECT_EQ((*flat)[1].dtype, DType::kInt32);
  EXPECT_FALSE((*flat)[3].shape.has_rank());
  EXPECT_EQ(Example().num_leaves(), 6u);
  EXPECT_EQ(Example().num_nodes(), 10u);
  EXPECT_EQ(Example().depth(), 3u);
}

TEST(SignatureTest, ALoneLeafFlattensToItsOwnName) {
  EXPECT_THAT(Names(*Leaf("x", DType::kBool, {}).Flatten()), testing::ElementsAre("x"));
  EXPECT_THAT(Names(*Leaf("", DType::kBool, {}).Flatten()), testing::ElementsAre(""));
}

Tensor FloatsOf(std::vector<int64_t> dims, std::vector<float> values) {
  return *Tensor::CopyOf({DType::kFloat32, dims, values.data()});
}

Tensor StringsOf(std::vector<std::string_view> values) {
  const std::vector<int64_t> dims = {static_cast<int64_t>(values.size())};
  return *Tensor::CopyOf({DType::kString, dims, values.data()});
}

TEST(SignatureTest, BoundsArePartOfTheValueAndOfItsEncoding) {
  const TensorSpec spec{"x", DType::kFloat32, {2, 3}};
  const auto make = [&](float maximum) {
    return *Signature::Leaf(spec, {FloatsOf({}, {-1}), FloatsOf({2, 1}, {maximum, NAN})});
  };
  const Signature bounded = *Signature::List({make(5)});
  EXPECT_EQ(bounded, *Signature::List({make(5)}));
  EXPECT_FALSE(bounded == *Signature::List({make(6)}));
  EXPECT_FALSE(bounded == *Signature::List({*Signature::Leaf(spec)}));
  EXPECT_EQ(bounded.ToString(), "[float32[2, 3] \"x\"]");

  const std::string bytes = EncodeSignature(bounded);
  const auto decoded = DecodeSignature(bytes);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, bounded);
  EXPECT_EQ(EncodeSignature(*decoded), bytes);
  const Signature::Bounds* const bounds = decoded->children()[0].bounds();
  ASSERT_NE(bounds, nullptr);
  EXPECT_THAT(bounds->minimum.dims(), testing::IsEmpty());
  EXPECT_THAT(bounds->maximum.dims(), testing::ElementsAre(2, 1));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeSignature(bytes.substr(0, size)), StatusIs(StatusCode::kDataLoss)) << size;
  }

  const Signature names =
      *Signature::Leaf({"", DType::kString, {-1}}, {StringsOf({"a", ""}), StringsOf({"z"})});
  EXPECT_EQ(*DecodeSignature(EncodeSignature(names)), names);
}

TEST(SignatureTest, BoundsMustHaveTheDtypeAndBroadcast) {
  const auto refused = [](TensorSpec spec, Tensor minimum, Tensor maximum) {
    return Signature::Leaf(std::move(spec), {std::move(minimum), std::move(maximum)}).status();
  };
  const TensorSpec pair{"x", DType::kFloat32, {2}};
  EXPECT_OK(refused(pair, FloatsOf({2}, {0, 0}), FloatsOf({1}, {1})));
  EXPECT_OK(refused({"", DType::kFloat32, Shape::UnknownRank()}, FloatsOf({2}, {0, 0}), FloatsOf({}, {1})));
  EXPECT_THAT(refused(pair, FloatsOf({}, {0}), FloatsOf({3}, {1, 2, 3})),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("maximum")));
  EXPECT_THAT(refused({"", DType::kFloat32, {}}, FloatsOf({1}, {0}), FloatsOf({}, {1})),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("minimum")));
  EXPECT_THAT(refused({"", DType::kInt32, {}}, FloatsOf({}, {0}), FloatsOf({}, {1})),
              StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("float32[]")));
}

TEST(SignatureTest, ABoundThatClaimsMoreThanItsBytesIsRefused) {
  // A bounded uint8 leaf of unknown rank whose minimum claims 2^35 elements.
  const std::string claim("\x01\x06\x04\x00\x00\x01\x80\x80\x80\x80\x80\x01", 12);
  EXPECT_THAT(DecodeSignature(claim), StatusIs(StatusCode::kDataLoss, testing::HasSubstr("bytes are left")));
}

TEST(SignatureTest, NoneCannotBeFlattened) {
  const auto flat = Signature::List({Signature()})->Flatten();
  EXPECT_THAT(flat, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(flat.status().message()), testing::HasSubstr("\"0\""));
}

TEST(SignatureTest, PrintsForPeople) {
  EXPECT_EQ(Example().ToString(),
            "{: (string[0] \"s\",), action: int32[2], obs: [uint8[84, 84, ?] \"pixels\", int64<unknown>], "
            "step: Step(reward=float32[], discount=float32[])}");
  EXPECT_EQ(Signature().ToString(), "None");
}

TEST(SignatureTest, EncodesAndDecodes) {
  for (const Signature& signature :
       {Example(), Signature(), Leaf("x", DType::kBfloat16, {INT64_MAX}), *Signature::List({}),
        *Signature::Tuple({}), *Signature::Dict({}), *Signature::NamedTuple("Empty", {}),
        *Signature::List({Signature(), Example()})}) {
    const std::string bytes = EncodeSignature(signature);
    const auto decoded = DecodeSignature(bytes);
    ASSERT_OK(decoded);
    EXPECT_EQ(*decoded, signature);
    EXPECT_EQ(EncodeSignature(*decoded), bytes);
  }
}

TEST(SignatureTest, DifferentStructuresDiffer) {
  EXPECT_FALSE(*Signature::List({}) == *Signature::Tuple({}));
  EXPECT_FALSE(Signature() == *Signature::List({}));
  EXPECT_FALSE(*Signature::NamedTuple("A", {}) == *Signature::NamedTuple("B", {}));
  EXPECT_FALSE(Leaf("x", DType::kBool, {}) == Leaf("y", DType::kBool, {}));
}

TEST(SignatureTest, RefusesRepeatedKeysLongNamesAndBadSpecs) {
  EXPECT_THAT(Signature::Dict({{"a", {}}, {"a", {}}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::NamedTuple("T", {{"a", {}}, {"b", {}}, {"a", {}}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::Dict({{std::string(2000, 'k'), {}}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::Leaf({std::string(2000, 'k'), DType::kBool, {}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::Leaf({"", DType::kBool, {-2}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::Leaf({"", static_cast<DType>(0), {}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Signature::Leaf({"", DType::kBool, Shape(std::vector<int64_t>(65, 1))}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(SignatureTest, DepthIsLimitedWhenBuiltAndWhenDecoded) {
  Signature nested;
  for (size_t depth = 1; depth < Signature::kMaxDepth; ++depth) nested = *Signature::List({nested});
  EXPECT_TRUE(DecodeSignature(EncodeSignature(nested)).ok());
  EXPECT_THAT(Signature::List({nested}), StatusIs(StatusCode::kInvalidArgument));

  std::string bytes(1, '\x01');
  for (int i = 0; i < 1000; ++i) bytes += std::string("\x02\x01", 2);
  bytes += '\0';
  EXPECT_THAT(DecodeSignature(bytes), StatusIs(StatusCode::kDataLoss));
}

TEST(SignatureTest, NodesAreLimited) {
  Signature wide;
  for (int i = 0; i < 20; ++i) {
    auto next = Signature::List({wide, wide});
    if (!next.ok()) {
      EXPECT_THAT(next, StatusIs(StatusCode::kInvalidArgument));
      EXPECT_LE(wide.num_nodes(), Signature::kMaxNodes);
      return;
    }
    wide = *std::move(next);
  }
  FAIL() << "2^21 nodes were accepted";
}

TEST(SignatureTest, RefusesClaimsLargerThanTheInput) {
  using namespace std::string_literals;
  for (const std::string& bytes :
       {""s, "\x02\x00"s, "\x01"s, "\x01\x09"s, "\x01\x00\x00"s, "\x01\x02\xff\xff\xff\xff\x0f"s,
        "\x01\x02\x80\x00"s /* not the shortest */, "\x01\x01\x01\xff\x7f"s, "\x01\x01\x00\x00\x00"s,
        "\x01\x04\x02\x01"
        "b\x00\x01"
        "a\x00"s /* not sorted */,
        "\x01\x04\x02\x01"
        "a\x00\x01"
        "a\x00"s,
        "\x01\x01\x01\x00\x43"s /* rank 66 */}) {
    EXPECT_THAT(DecodeSignature(bytes), StatusIs(StatusCode::kDataLoss));
  }
}

TEST(SignatureTest, DamageIsAnErrorOrAnotherValidSignature) {
  const std::string good = EncodeSignature(Example());
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_THAT(DecodeSignature(good.substr(0, cut)), StatusIs(StatusCode::kDataLoss)) << cut;
  }
  EXPECT_FALSE(DecodeSignature(good + "x").ok());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const auto decoded = DecodeSignature(bad);
      if (decoded.ok()) {
        EXPECT_EQ(EncodeSignature(*decoded), bad);
      }
    }
  }
}

TEST(SignatureTest, NamesOfAllLeavesTogetherAreBounded) {
  // A deep path of long keys above many leaves.
  std::vector<Signature> leaves(4096, Leaf("", DType::kBool, {}));
  Signature node = *Signature::List(std::move(leaves));
  for (int i = 0; i < 60; ++i) node = *Signature::Dict({{std::string(1024, 'k'), node}});
  EXPECT_THAT(node.Flatten(), StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace reverb
