#include "core/table_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/chunk_store.h"
#include "tensor/column.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

ItemStructure StructureOf(const Result<Signature>& nest) {
  return ItemStructure::Create(nest.value()).value();
}
ItemStructure ListOf(size_t leaves) { return StructureOf(Signature::List(std::vector<Signature>(leaves))); }
ItemStructure DictOf(std::vector<std::string> keys) {
  std::vector<Signature::Field> fields;
  for (std::string& key : keys) fields.emplace_back(std::move(key), Signature());
  return StructureOf(Signature::Dict(std::move(fields)));
}
std::string BytesOf(const ItemStructure& structure) { return std::string(structure.encoded()); }

TableOptions Options(LayoutPolicy policy = LayoutPolicy::kFirst) { return {.name = "t", .layout = policy}; }

class TableLayoutTest : public ::testing::Test {
 protected:
  // Returns an item whose columns have these dtypes, one row each.
  Item MakeItem(const ItemStructure& structure, const std::vector<DType>& dtypes, uint32_t rows = 1) {
    std::vector<ColumnSpec> columns;
    for (const DType dtype : dtypes) {
      const std::vector<uint8_t> raw(rows * ItemSize(dtype));
      std::vector<uint8_t> payload;
      ChunkHeader header{.episode_id = 1, .first_step = 0, .last_step = rows - 1, .rows = rows};
      header.columns.push_back(
          ColumnEncoder(dtype, {}, CodecPolicy::kNone).Encode(raw, rows, &payload).value());
      columns.push_back({.slices = {{store_->Add(header, payload).value(), 0, 0, rows}}});
    }
    return {.key = 1, .trajectory = Trajectory::Create(columns).value(), .structure = structure};
  }
  Item IntItem(const ItemStructure& structure, size_t columns) {
    return MakeItem(structure, std::vector<DType>(columns, DType::kInt64));
  }

  std::unique_ptr<ChunkStore> store_ = std::make_unique<ChunkStore>(ChunkStore::Options{});
};

TEST_F(TableLayoutTest, KeepsTheFirstAndRefusesOthers) {
  TableLayout layout(Options());
  TableLayout::Checked one, two;
  EXPECT_EQ(layout.structure(), std::nullopt);
  EXPECT_OK(layout.Check(IntItem(DictOf({"x"}), 1), &one));
  EXPECT_OK(layout.Check(IntItem(DictOf({"x"}), 1), &two));  // from another writer
  EXPECT_OK(layout.Check(IntItem({}, 1), &two));             // unknown: only the columns are compared
  for (TableLayout::Checked* writer : {&one, &two}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(
          layout.Check(IntItem(DictOf({"y"}), 1), writer),
          StatusIs(StatusCode::kInvalidArgument,
                   AllOf(HasSubstr("table \"t\": the item has the layout {y: int64}, but the table has "
                                   "{x: int64}, that of its first item"),
                         HasSubstr("layout=\"any\""))));
    }
    EXPECT_THAT(layout.Check(IntItem({}, 2), writer),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("layout [int64, int64]")));
    EXPECT_THAT(layout.Check(MakeItem(DictOf({"x"}), {DType::kFloat32}), writer),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("{x: float32}, but")));
    EXPECT_OK(layout.Check(IntItem(DictOf({"x"}), 1), writer));
  }
  EXPECT_EQ(layout.structure(), BytesOf(DictOf({"x"})));
}

TEST_F(TableLayoutTest, TheSameStructureWithOtherColumnsIsChecked) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  const ItemStructure structure = DictOf({"x", "y"});
  EXPECT_OK(layout.Check(MakeItem(structure, {DType::kInt64, DType::kBool}), &last));
  EXPECT_THAT(
      layout.Check(MakeItem(structure, {DType::kBool, DType::kInt64}), &last),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("{x: bool, y: int64}, but the table has {x: int64")));
  EXPECT_OK(layout.Check(MakeItem(structure, {DType::kInt64, DType::kBool}, /*rows=*/3), &last));
}

TEST_F(TableLayoutTest, AdoptsNamesThatArriveLater) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem({}, 2), &last));
  EXPECT_EQ(layout.structure(), std::nullopt);
  EXPECT_OK(layout.Check(IntItem(DictOf({"x", "y"}), 2), &last));
  EXPECT_EQ(layout.structure(), BytesOf(DictOf({"x", "y"})));
  EXPECT_THAT(layout.Check(IntItem(DictOf({"x", "z"}), 2), &last), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableLayoutTest, IgnoresAStructureThatDoesNotDescribeTheItem) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem(ListOf(3), 2), &last));
  EXPECT_EQ(layout.structure(), std::nullopt);
}

TEST_F(TableLayoutTest, AListIsLikeATuple) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem(ListOf(2), 2), &last));
  EXPECT_OK(layout.Check(IntItem(StructureOf(Signature::Tuple(std::vector<Signature>(2))), 2), &last));
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(2)));
}

TEST_F(TableLayoutTest, ASingleColumnIsLikeAListOfOne) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem(ListOf(1), 1), &last));
  EXPECT_OK(layout.Check(IntItem(StructureOf(Signature()), 1), &last));
  EXPECT_THAT(layout.Check(IntItem(DictOf({"0"}), 1), &last), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableLayoutTest, AResetAllowsAnotherLayout) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem(ListOf(1), 1), &last));
  layout.Reset();
  // Items in flight still have the same structure.
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(1)));
  EXPECT_EQ(layout.structure_to_save(), std::nullopt) << "a restored table would refuse other layouts";
  EXPECT_OK(layout.Check(MakeItem(ListOf(2), {DType::kBool, DType::kBool}), &last));
  EXPECT_EQ(layout.structure_to_save(), BytesOf(ListOf(2)));
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(2)));
  EXPECT_THAT(layout.Check(IntItem(ListOf(1), 1), &last), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableLayoutTest, WritersCheckItemsAgainstASignature) {
  TableOptions options = Options();
  options.signature = Signature::Leaf({.dtype = DType::kInt64, .shape = Shape::UnknownRank()}).value();
  TableLayout layout(options);
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem(DictOf({"b"}), 1), &last));
  EXPECT_OK(layout.Check(MakeItem(DictOf({"a"}), {DType::kFloat32}), &last));  // from one that does not
  EXPECT_EQ(layout.structure(), std::nullopt);
}

TEST_F(TableLayoutTest, AnyAcceptsAllAndReportsAmbiguity) {
  TableLayout layout(Options(LayoutPolicy::kAny));
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem({}, 1), &last));
  EXPECT_EQ(layout.structure(), std::nullopt);
  EXPECT_OK(layout.Check(IntItem(ListOf(1), 1), &last));
  EXPECT_OK(layout.Check(MakeItem(ListOf(1), {DType::kBool}), &last));
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(1)));
  EXPECT_OK(layout.Check(IntItem(ListOf(2), 2), &last));
  EXPECT_EQ(layout.structure(), "");
  layout.Reset();
  EXPECT_EQ(layout.structure(), std::nullopt);
  EXPECT_OK(layout.Check(IntItem(ListOf(3), 3), &last));
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(3)));
}

TEST_F(TableLayoutTest, CanBeRestored) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.RestoreStructure(std::nullopt));
  EXPECT_EQ(layout.structure(), std::nullopt);
  EXPECT_OK(layout.RestoreStructure(BytesOf(ListOf(1))));
  EXPECT_EQ(layout.structure(), BytesOf(ListOf(1)));
  EXPECT_THAT(layout.Check(IntItem(DictOf({"x"}), 1), &last), StatusIs(StatusCode::kInvalidArgument));
  layout.RestoreDTypes(IntItem({}, 1).trajectory);
  EXPECT_THAT(layout.Check(MakeItem(ListOf(1), {DType::kBool}), &last),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(layout.Check(IntItem(ListOf(1), 1), &last));
  // Saved by a release that accepted any item.
  TableLayout mixed(Options());
  EXPECT_OK(mixed.RestoreStructure(""));
  mixed.RestoreDTypes(IntItem({}, 1).trajectory);
  EXPECT_EQ(mixed.structure(), "");
  TableLayout::Checked other;
  EXPECT_OK(mixed.Check(IntItem(ListOf(2), 2), &other));
  EXPECT_EQ(mixed.structure(), "");
  TableLayout damaged(Options());
  EXPECT_THAT(damaged.RestoreStructure("\x01\x09"), StatusIs(StatusCode::kDataLoss));
}

TEST_F(TableLayoutTest, LongLayoutsAreCut) {
  TableLayout layout(Options());
  TableLayout::Checked last;
  EXPECT_OK(layout.Check(IntItem({}, 1), &last));
  const Status status = layout.Check(IntItem({}, 1000), &last);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("…, but")));
  EXPECT_LT(status.message().size(), 3000u);
}

}  // namespace
}  // namespace reverb::internal
