// Tests reading of dm-reverb checkpoints: tables, items, tensors, in the current and in old formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/dm_reverb/crc32c.h"
#include "checkpoint/layout.h"
#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "dm_reverb/dm_reverb_files.h"
#include "reverb/signature.h"
#include "reverb/structured_value.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::test {
namespace {

using internal::CheckpointSource;
using internal::ChunkStore;
using internal::SavedItem;
using internal::SavedTable;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/data/2026-07-14T10:29:53.5-07:00";

class DmReverbSourceTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<CheckpointSource>> Open(const CheckpointFiles& files) {
    files.Write(&fs_, kPath);
    return internal::OpenDmReverbCheckpoint(&fs_, kPath);
  }

  // Returns all items of all tables, or of the wanted ones.
  Result<std::vector<SavedItem>> ReadItems(CheckpointSource& source, std::vector<bool> wanted = {}) {
    wanted.resize(source.server().tables.size(), wanted.empty());
    std::vector<SavedItem> items;
    REVERB_RETURN_IF_ERROR(source.Read(store_, {.tables = wanted},
                                       {.add_item =
                                            [&](size_t, SavedItem item) {
                                              items.push_back(std::move(item));
                                              return Status::Ok();
                                            }},
                                       {}));
    return items;
  }

  Result<std::vector<SavedItem>> ReadItems(const CheckpointFiles& files) {
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source, Open(files));
    return ReadItems(*source);
  }

  // Writes one item, whose columns are the tensors of one chunk of four rows.
  Result<SavedItem> ReadTensors(const std::vector<Message>& tensors, bool delta = false, int32_t rows = 4) {
    std::vector<ColumnOf> columns;
    for (size_t i = 0; i < tensors.size(); ++i) {
      columns.push_back({.slices = {{1, 0, rows, static_cast<int32_t>(i)}}});
    }
    CheckpointFiles files{.tables = {TableOf("t", LimiterOf(1)).bytes()},
                          .items = {ItemOf(7, "t", 1, 0, 1, columns).bytes()},
                          .chunks = {ChunkOf(1, RangeOf(1, 0, rows - 1), tensors, delta).bytes()}};
    REVERB_ASSIGN_OR_RETURN(std::vector<SavedItem> items, ReadItems(files));
    return std::move(items.at(0));
  }

  FakeFileSystem fs_;
  ChunkStore store_{{}};
};

template <typename T>
std::vector<T> ColumnValues(const SavedItem& item, uint32_t column) {
  const internal::ColumnView view = item.trajectory.column_view(column);
  std::vector<T> values(static_cast<size_t>(item.trajectory.length(column)) * view.row_elements());
  EXPECT_OK(item.trajectory.Read(
      column, std::span(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T))));
  return values;
}

TEST(Crc32cTest, HasTheKnownValues) {
  const auto crc = [](std::string_view bytes) {
    return internal::Crc32c({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  };
  EXPECT_EQ(crc(""), 0u);
  EXPECT_EQ(crc("123456789"), 0xe3069283u);            // the check value of CRC-32C
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(DmReverbSourceTest, TablesComeWithSettingsAndCounters) {
  const Message limiter =
      Message().Double(2, 4.5).Double(3, -10).Double(4, 20).Int(5, 2).Int(6, 6).Int(7, 3).Int(8, 3);
  const Message table = Message()
                            .Bytes(1, "per")
                            .Add(3, limiter)
                            .Add(4, Prioritized(0.75))
                            .Add(5, Heap(true))
                            .Int(6, 1000)
                            .Int(7, 3)
                            .Int(8, 11)
                            .Int(10, 12);
  const auto source = Open({.tables = {table.bytes()}});
  ASSERT_OK(source);
  const internal::SavedServer& server = (*source)->server();
  EXPECT_EQ(server.format, "dm-reverb");
  EXPECT_EQ(server.created_nanos, 1784050193'500'000'000);  // 17:29:53.5 UTC
  ASSERT_EQ(server.tables.size(), 1u);
  const SavedTable& per = server.tables[0];
  EXPECT_EQ(per.name, "per");
  EXPECT_EQ(per.sampler, SelectorOptions::Prioritized(0.75));
  EXPECT_EQ(per.remover, SelectorOptions::MinHeap());
  EXPECT_EQ(per.max_size, 1000);
  EXPECT_EQ(per.max_times_sampled, 3);
  EXPECT_EQ(per.rate_limiter, (RateLimiterOptions{4.5, 2, -10, 20}));
  EXPECT_EQ(per.state.counters, (RateLimiterCounters{.inserts = 3, .samples = 6, .deletes = 3}));
  EXPECT_EQ(per.state.counts.num_deleted_episodes, 11);
  EXPECT_EQ(per.state.counts.num_unique_samples, 12);
  EXPECT_EQ(per.size, 0);
  EXPECT_EQ(per.signature, "");
}

TEST_F(DmReverbSourceTest, EverySelectorIsKnown) {
  const std::vector<std::pair<Message, SelectorOptions>> selectors = {
      {Fifo(), SelectorOptions::Fifo()},        {Message().Int(6, 1), SelectorOptions::Lifo()},
      {Uniform(), SelectorOptions::Uniform()},  {Heap(false), SelectorOptions::MaxHeap()},
      {Heap(true), SelectorOptions::MinHeap()}, {Prioritized(0.5), SelectorOptions::Prioritized(0.5)},
  };
  for (const auto& [message, expected] : selectors) {
    const Message table =
        Message().Bytes(1, "t").Add(3, LimiterOf(0)).Add(4, message).Add(5, message).Int(6, 5);
    const auto source = Open({.tables = {table.bytes()}});
    ASSERT_OK(source) << expected.ToString();
    EXPECT_EQ((*source)->server().tables[0].sampler, expected);
    EXPECT_EQ((*source)->server().tables[0].remover, expected);
  }
}

TEST_F(DmReverbSourceTest, ItemsComeByTimeOfInsertionWithTheirRows) {
  const Message chunk =
      ChunkOf(1, RangeOf(9, 0, 3), {TensorOf<int64_t>(DType::kInt64, {4}, {10, 11, 12, 13})});
  const Message more = ChunkOf(2, RangeOf(9, 4, 5), {TensorOf<int64_t>(DType::kInt64, {2}, {14, 15})});
  CheckpointFiles files;
  files.tables = {TableOf("a", LimiterOf(2)).bytes(), TableOf("b", LimiterOf(4, 0, 3)).bytes()};
  files.items = {ItemOf(5, "b", 0.5, 2, 100, {{.slices = {{1, 0, 1}}, .squeeze = true}}).bytes(),
                 ItemOf(7, "a", 3, 0, 300, {{.slices = {{1, 2, 2}, {2, 0, 1}}}}).bytes(),
                 ItemOf(6, "a", 2, 1, 200, {{.slices = {{1, 3, 1}, {1, 0, 2}}}}).bytes()};
  files.chunks = {more.bytes(), chunk.bytes()};
  const auto source = Open(files);
  ASSERT_OK(source);
  EXPECT_EQ((*source)->Info().num_chunks, 2);
  EXPECT_EQ((*source)->server().tables[0].size, 2);
  const auto items = ReadItems(**source);
  ASSERT_OK(items);
  ASSERT_EQ(items->size(), 3u);
  EXPECT_EQ((*items)[0].key, 6u);
  EXPECT_EQ((*items)[0].priority, 2);
  EXPECT_EQ((*items)[0].times_sampled, 1);
  EXPECT_EQ((*items)[0].inserted_at, 200'000'000'005);
  EXPECT_FALSE((*items)[0].slot.has_value());
  EXPECT_THAT(ColumnValues<int64_t>((*items)[0], 0), ElementsAre(13, 10, 11));
  EXPECT_EQ((*items)[1].key, 7u);
  EXPECT_THAT(ColumnValues<int64_t>((*items)[1], 0), ElementsAre(12, 13, 14));
  EXPECT_EQ((*items)[2].key, 5u);
  EXPECT_TRUE((*items)[2].trajectory.squeeze(0));
  EXPECT_THAT(ColumnValues<int64_t>((*items)[2], 0), ElementsAre(10));

  // Unwanted tables and their chunks are not loaded.
  const auto of_b = ReadItems(**source, {false, true});
  ASSERT_OK(of_b);
  ASSERT_EQ(of_b->size(), 1u);
  EXPECT_EQ((*of_b)[0].key, 5u);
}

TEST_F(DmReverbSourceTest, ChunksAreShared) {
  CheckpointFiles files{.tables = {TableOf("a", LimiterOf(2)).bytes()}};
  files.items = {ItemOf(1, "a", 1, 0, 1, {{.slices = {{1, 0, 1}}}}).bytes(),
                 ItemOf(2, "a", 1, 0, 1, {{.slices = {{1, 1, 1}}}}).bytes()};
  files.chunks = {ChunkOf(1, RangeOf(1, 0, 1), {TensorOf<float>(DType::kFloat32, {2}, {1, 2})}).bytes(),
                  ChunkOf(3, RangeOf(1, 2, 3), {TensorOf<float>(DType::kFloat32, {2}, {3, 4})}).bytes()};
  const auto items = ReadItems(files);
  ASSERT_OK(items);
  EXPECT_EQ((*items)[0].trajectory.slice(0, 0).chunk, (*items)[1].trajectory.slice(0, 0).chunk);
  EXPECT_EQ(store_.stats().live_chunks, 1);  // no wanted item uses the other
}

TEST_F(DmReverbSourceTest, EveryDTypeComesBackAsItWas) {
  for (const DType dtype : AllDTypes()) {
    if (dtype == DType::kString) continue;
    std::string raw(4 * 3 * ItemSize(dtype), '\0');
    for (size_t i = 0; i < raw.size(); ++i)
      raw[i] = static_cast<char>(dtype == DType::kBool ? i % 2 : i * 37);
    const auto item = ReadTensors({TensorOf(dtype, {4, 3}, Snappy(raw))});
    ASSERT_OK(item) << DTypeName(dtype);
    EXPECT_EQ(item->trajectory.column_view(0).dtype, dtype);
    EXPECT_THAT(item->trajectory.column_view(0).row_shape, ElementsAre(3));
    std::string read(raw.size(), '\0');
    ASSERT_OK(item->trajectory.Read(0, std::span(reinterpret_cast<uint8_t*>(read.data()), read.size())));
    EXPECT_EQ(read, raw) << DTypeName(dtype);
  }
}

TEST_F(DmReverbSourceTest, DeltaIsUndoneForIntegersOfTwoDimensionsOrMore) {
  // [rows, 2]: 1 2, 3 1, 3 4, 0 0
  const auto item =
      ReadTensors({TensorOf<int32_t>(DType::kInt32, {4, 2}, {1, 2, 2, -1, 0, 3, -3, -4}),
                   TensorOf<uint8_t>(DType::kUint8, {4, 1}, {250, 10, 0, 255}),  // wraps around
                   TensorOf<int64_t>(DType::kInt64, {4}, {5, 6, 7, 8}),          // rank 1: as it is
                   TensorOf<float>(DType::kFloat32, {4, 1}, {1, 2, 3, 4}),       // floats: as they are
                   TensorOf<uint8_t>(DType::kBool, {4, 1}, {1, 1, 0, 1})},       // so are booleans
                  /*delta=*/true);
  ASSERT_OK(item);
  EXPECT_THAT(ColumnValues<int32_t>(*item, 0), ElementsAre(1, 2, 3, 1, 3, 4, 0, 0));
  EXPECT_THAT(ColumnValues<uint8_t>(*item, 1), ElementsAre(250, 4, 4, 3));
  EXPECT_THAT(ColumnValues<int64_t>(*item, 2), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(ColumnValues<float>(*item, 3), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ColumnValues<uint8_t>(*item, 4), ElementsAre(1, 1, 0, 1));
}

TEST_F(DmReverbSourceTest, StringsComeBack) {
  const std::vector<std::string> strings = {"", "a", std::string("b\0c", 3), std::string(300, 'd')};
  Message as_values = Message().Int(1, static_cast<int64_t>(DType::kString)).Add(2, ShapeOf({4}));
  for (const std::string& string : strings) as_values.Bytes(8, string);
  const auto item = ReadTensors({TensorOf(DType::kString, {4}, StringList(strings)), as_values});
  ASSERT_OK(item);
  for (const uint32_t column : {0u, 1u}) {
    std::vector<std::string> read;
    ASSERT_OK(item->trajectory.ReadStrings(column, &read));
    EXPECT_EQ(read, strings);
  }
}

TEST_F(DmReverbSourceTest, RowsWithoutElementsAreFine) {
  const auto item = ReadTensors({TensorOf<float>(DType::kFloat32, {4, 0}, {})});
  ASSERT_OK(item);
  EXPECT_EQ(item->trajectory.length(0), 4);
}

TEST_F(DmReverbSourceTest, LargeChunksComeBack) {
  std::vector<int32_t> values(size_t{1} << 18);
  uint32_t state = 1;
  for (int32_t& value : values) value = static_cast<int32_t>(state = state * 1664525 + 1013904223);
  const auto item = ReadTensors({TensorOf<int32_t>(DType::kInt32, {256, 1024}, values)}, false, 256);
  ASSERT_OK(item);
  EXPECT_EQ(ColumnValues<int32_t>(*item, 0), values);
}

TEST_F(DmReverbSourceTest, FilesNeedNotBeCompressed) {
  CheckpointFiles files{
      .tables = {TableOf("t", LimiterOf(1)).bytes()},
      .items = {ItemOf(7, "t", 1, 0, 1, {{.slices = {{1, 0, 1}}}}).bytes()},
      .chunks = {ChunkOf(1, RangeOf(1, 0, 0), {TensorOf<float>(DType::kFloat32, {1}, {5})}).bytes()},
      .compressed = false};
  const auto items = ReadItems(files);
  ASSERT_OK(items);
  EXPECT_THAT(ColumnValues<float>(items->at(0), 0), ElementsAre(5));
}

TEST_F(DmReverbSourceTest, OldFilesAreRead) {
  // Items inside the table, over chunk keys and a range; tensors in the old field.
  const auto old_chunk = [](uint64_t key, int32_t start, std::vector<int64_t> values) {
    const auto rows = static_cast<int64_t>(values.size());
    return Message()
        .Int(1, static_cast<int64_t>(key))
        .Add(2, RangeOf(1, start, start + static_cast<int32_t>(rows) - 1))
        .Add(3, TensorOf(DType::kInt64, {rows}, values))
        .Add(3, TensorOf(DType::kInt64, {rows}, values))
        .bytes();
  };
  // Keys packed, as proto3 writes them, and individually.
  const Message item = Message()
                           .Int(1, 77)
                           .Bytes(3, std::string("\x01\x02", 2))
                           .Int(3, 3)
                           .Add(4, Message().Int(1, 1).Int(2, 4))
                           .Double(5, 1.5);
  const CheckpointFiles files{
      .tables = {Message(TableOf("t", LimiterOf(1))).Add(2, item).bytes()},
      .chunks = {old_chunk(1, 0, {10, 11}), old_chunk(2, 2, {12, 13}), old_chunk(3, 4, {14, 15})},
      .has_items_file = false};
  const auto items = ReadItems(files);
  ASSERT_OK(items);
  ASSERT_EQ(items->size(), 1u);
  EXPECT_EQ((*items)[0].key, 77u);
  ASSERT_EQ((*items)[0].trajectory.num_columns(), 2u);
  EXPECT_THAT(ColumnValues<int64_t>((*items)[0], 0), ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(ColumnValues<int64_t>((*items)[0], 1), ElementsAre(11, 12, 13, 14));
  EXPECT_FALSE((*items)[0].trajectory.squeeze(0));
}

TEST_F(DmReverbSourceTest, SignaturesAreTranslated) {
  const auto spec = [](const char* name, std::initializer_list<int64_t> dims, DType dtype) {
    return Message().Bytes(1, name).Add(2, ShapeOf(dims)).Int(3, static_cast<int64_t>(dtype));
  };
  const auto entry = [](const char* key, const Message& value) {
    return Message().Bytes(1, key).Add(2, value);
  };
  const Message leaf = Message().Add(33, spec("pixels", {-1, 84}, DType::kUint8));
  const std::string two("\0\0\0\x40", 4);  // 2.0f
  const Message bounded =
      Message().Add(35, Message(spec("", {-1}, DType::kFloat32))
                            .Add(4, TensorOf(DType::kFloat32, {1}, two))
                            .Add(5, Message(TensorOf(DType::kFloat32, {3}, "")).Bytes(5, two)));
  const Message unknown_rank =
      Message().Add(33, Message().Add(2, Message().Int(3, 1)).Int(3, static_cast<int64_t>(DType::kInt64)));
  const Message list = Message().Add(51, Message().Add(1, leaf).Add(1, bounded));
  const Message tuple = Message().Add(52, Message().Add(1, unknown_rank));
  const Message named =
      Message().Add(54, Message().Bytes(1, "Step").Add(2, entry("z", leaf)).Add(2, entry("a", bounded)));
  const Message dict = Message().Add(
      53, Message().Add(1, entry("obs", list)).Add(1, entry("act", tuple)).Add(1, entry("n", named)));
  const auto source = Open({.tables = {Message(TableOf("t", LimiterOf(0))).Add(9, dict).bytes()}});
  ASSERT_OK(source);
  const SavedTable& table = (*source)->server().tables[0];
  const auto signature = DecodeSignature(table.signature);
  ASSERT_OK(signature);
  EXPECT_EQ(signature->ToString(),
            "{act: (int64<unknown>,), n: Step(z=uint8[?, 84] \"pixels\", a=float32[?]), "
            "obs: [uint8[?, 84] \"pixels\", float32[?]]}");
  const Signature::Bounds* const bounds = signature->children()[2].children()[1].bounds();
  ASSERT_NE(bounds, nullptr);
  const auto floats = [](const Tensor& tensor) {
    return std::vector<float>(reinterpret_cast<const float*>(tensor.data()),
                              reinterpret_cast<const float*>(tensor.data()) + tensor.num_elements());
  };
  EXPECT_THAT(floats(bounds->minimum), ElementsAre(2));
  EXPECT_THAT(floats(bounds->maximum), ElementsAre(2, 2, 2));  // one value applies to all
  EXPECT_EQ(*DecodeStructuredValue(EncodeStructuredValue(*signature)), *signature);
}

TEST_F(DmReverbSourceTest, MalformedBoundsAreRefusedAndOthersDropped) {
  const auto decode = [](const Message& minimum) {
    const Message spec = Message().Add(2, ShapeOf({2})).Int(3, static_cast<int64_t>(DType::kFloat32));
    const Message maximum = TensorOf(DType::kFloat32, {}, std::string(4, '\0'));
    return DecodeStructuredValue(Message().Add(35, Message(spec).Add(4, minimum).Add(5, maximum)).bytes());
  };
  const std::string zeros(8, '\0');
  // No values are zeros.
  for (const std::string& values : {zeros, std::string()}) {
    const Result<Signature> signature = decode(TensorOf(DType::kFloat32, {2}, values));
    ASSERT_OK(signature);
    EXPECT_NE(signature->bounds(), nullptr);
  }
  for (const Message& minimum :
       {TensorOf(DType::kFloat32, {2}, "cut"), Message(TensorOf(DType::kFloat32, {1}, "")).Bytes(5, zeros)}) {
    EXPECT_THAT(decode(minimum).status(), StatusIs(StatusCode::kDataLoss));
  }
  // TensorFlow accepts bounds of a higher rank than the value; a bound may be absent.
  for (const Message& minimum :
       {Message(), TensorOf(DType::kFloat32, {1, 2}, zeros),
        TensorOf(DType::kFloat32, {3}, std::string(12, '\0')), TensorOf(DType::kInt32, {2}, zeros),
        TensorOf(DType::kFloat32, {-1}, zeros), TensorOf(DType::kFloat32, {int64_t{1} << 40, 1}, "")}) {
    const Result<Signature> signature = decode(minimum);
    ASSERT_OK(signature);
    EXPECT_EQ(signature->bounds(), nullptr);
    EXPECT_EQ(signature->ToString(), "float32[2]");
  }
}

TEST_F(DmReverbSourceTest, TimesInNamesAreReadInTheirZone) {
  const auto time = [](std::string_view name) { return internal::ParseCheckpointName(name); };
  EXPECT_EQ(time("1970-01-01T00:00:00+00:00"), 0);
  EXPECT_EQ(time("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(time("1970-01-01T01:00:00.000000001+01:00"), 1);
  EXPECT_EQ(time("1970-01-01T00:00:01.25-07:00"), 25'201'250'000'000);
  // The hour at which clocks were set back: the names alone sort the wrong way.
  EXPECT_LT(*time("2026-10-25T02:59:59+02:00"), *time("2026-10-25T02:00:00+01:00"));
  for (const char* name : {"", "DONE", "2026-10-25", "2026-10-25T02:59:59", "2026-13-25T02:59:59Z", "zzz",
                           "2026-10-25T02:59:59+02:00 (copy)", "2026-10-25T02:59:59.+2",
                           "9999-01-01T00:00:00Z", "-026-10-25T02:59:59Z", "2026-10-25T02:59:-9Z"}) {
    EXPECT_EQ(time(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace reverb::test
