// wire_testing.h — makes chunks, trajectories and messages for tests of the encoding.
#ifndef REVERB_TRANSPORT_WIRE_TESTING_H_
#define REVERB_TRANSPORT_WIRE_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tensor/chunk.h"
#include "tensor/column.h"
#include "tensor/trajectory.h"
#include "transport/messages.h"
#include "transport/wire.h"
#include "transport/wire_fields.h"

namespace reverb::test {

struct ColumnKind {
  DType dtype = DType::kInt64;
  std::vector<uint32_t> row_shape = {};
  internal::CodecPolicy policy = internal::CodecPolicy::kNone;
};

// Returns one of every kind: raw and compressed, small, large and empty rows, several blocks, strings.
inline std::vector<ColumnKind> AllKinds() {
  using internal::CodecPolicy;
  return {{DType::kInt64, {}, CodecPolicy::kNone},       {DType::kFloat32, {3}, CodecPolicy::kNone},
          {DType::kUint8, {20, 20}, CodecPolicy::kLz4},  {DType::kString, {}, CodecPolicy::kNone},
          {DType::kString, {2}, CodecPolicy::kZstd},     {DType::kUint16, {6000}, CodecPolicy::kLz4},
          {DType::kFloat32, {600}, CodecPolicy::kNone},  {DType::kBool, {0, 3}, CodecPolicy::kNone},
          {DType::kInt32, {50}, CodecPolicy::kAuto},     {DType::kUint8, {9000}, CodecPolicy::kNone},
          {DType::kFloat64, {10}, CodecPolicy::kSnappy}, {DType::kBool, {}, CodecPolicy::kZstd}};
}

// Makes a chunk of rows that change slowly, so that every codec compresses them.
inline internal::ChunkRef MakeChunk(uint64_t id, const std::vector<ColumnKind>& kinds, uint32_t rows,
                                    internal::Random* random, internal::PayloadSource* source = nullptr) {
  internal::ChunkHeader header{.episode_id = random->Next(),
                               .first_step = -3,
                               .last_step = static_cast<int64_t>(rows) - 4,
                               .rows = rows};
  std::vector<uint8_t> payload;
  for (const ColumnKind& kind : kinds) {
    internal::ColumnEncoder encoder(kind.dtype, kind.row_shape, kind.policy);
    const uint64_t elements = internal::NumElements(kind.row_shape);
    if (kind.dtype == DType::kString) {
      std::vector<std::string> owned;
      for (uint64_t i = 0; i < elements * rows; ++i) {
        owned.emplace_back(random->Below(12), static_cast<char>('a' + random->Below(3)));
      }
      const std::vector<std::string_view> views(owned.begin(), owned.end());
      header.columns.push_back(encoder.EncodeStrings(views, rows, &payload).value());
      continue;
    }
    std::vector<uint8_t> row(elements * ItemSize(kind.dtype), static_cast<uint8_t>(random->Next()));
    std::vector<uint8_t> all;
    for (uint32_t i = 0; i < rows; ++i) {
      for (size_t k = 0; !row.empty() && k < row.size() / 50 + 2; ++k) {
        row[random->Below(row.size())] = static_cast<uint8_t>(random->Next());
      }
      all.insert(all.end(), row.begin(), row.end());
    }
    header.columns.push_back(encoder.Encode(all, rows, &payload).value());
  }
  return internal::Chunk::Copy(id, header, payload, {}, source).value();
}

// Makes columns of the given kinds (by index into the columns of the chunks), each of one to three slices.
inline internal::Trajectory RandomTrajectory(const std::vector<internal::ChunkRef>& chunks,
                                             const std::vector<uint32_t>& columns, internal::Random* random) {
  std::vector<internal::ColumnSpec> specs;
  for (const uint32_t column : columns) {
    internal::ColumnSpec& spec = specs.emplace_back();
    const uint64_t slices = 1 + random->Below(3);
    uint32_t rows = 0;
    for (uint64_t i = 0; i < slices; ++i) {
      const internal::ChunkRef& chunk = chunks[random->Below(chunks.size())];
      const auto offset = static_cast<uint32_t>(random->Below(chunk->header().rows()));
      const auto length = static_cast<uint32_t>(1 + random->Below(chunk->header().rows() - offset));
      spec.slices.push_back({chunk, column, offset, length});
      rows += length;
    }
    spec.squeeze = rows == 1 && random->Below(2) == 0;
  }
  return internal::Trajectory::Create(specs).value();
}

// Returns everything that a reader of a trajectory sees, as text.
inline std::string Contents(const internal::Trajectory& trajectory) {
  std::string all;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    const internal::ColumnView view = trajectory.column_view(c);
    all += "column " + std::string(DTypeName(view.dtype));
    for (uint32_t dim : view.row_shape) all += " " + std::to_string(dim);
    all += " rows " + std::to_string(trajectory.length(c)) + (trajectory.squeeze(c) ? " squeezed\n" : "\n");
    if (view.dtype == DType::kString) {
      std::vector<std::string> strings;
      if (!trajectory.ReadStrings(c, &strings).ok()) all += "cannot be read";
      for (const std::string& text : strings) all += std::to_string(text.size()) + ":" + text;
    } else {
      std::vector<uint8_t> bytes(static_cast<size_t>(trajectory.length(c)) * view.row_bytes());
      if (!trajectory.Read(c, bytes).ok()) all += "cannot be read";
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return all;
}

// Returns the parts of a message as a receiver sees them.
inline std::vector<internal::ByteSlice> Slices(const internal::WireMessage& message) {
  std::vector<internal::ByteSlice> slices;
  for (const internal::Buffer& part : message.parts()) slices.push_back(part.span());
  return slices;
}
inline internal::ByteSlice SliceOf(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// --- Messages with a value in every field ---

// Sets every field of a record to a value that depends on its number and is not the default.
template <typename T>
void FillValue(const char* name, uint32_t number, FieldKind kind, T* value) {
  if constexpr (internal::kIsOptional<T>) {
    FillValue(name, number, kind, &value->emplace());
  } else if constexpr (std::is_same_v<T, std::vector<uint64_t>>) {
    *value = {number, 0, uint64_t{1} << 63};
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    *value = {name, ""};
  } else if constexpr (internal::kIsVector<T>) {
    // The second one is left empty.
    value->resize(2);
    FillValue(name, number, kind, &value->front());
    internal::ClearValue(&value->back());
    internal::FinishDecoding(&value->back());
  } else if constexpr (std::is_array_v<T>) {
    for (size_t i = 1; i < std::extent_v<T>; ++i) FillValue(name, number, kind, &(*value)[i]);
  } else if constexpr (HasFields<T>) {
    ForEachField<T>(
        [&](const auto& field) { FillValue(field.name, field.number, field.kind, &field(*value)); });
    internal::FinishDecoding(value);
  } else if constexpr (std::is_same_v<T, Status>) {
    *value = Status(StatusCode::kDeadlineExceeded, name, Detail::kRateLimited);
  } else if constexpr (std::is_same_v<T, std::string>) {
    *value = name;
    if (kind == FieldKind::kBytes) *value += std::string("\0\xff", 2);
  } else if constexpr (std::is_same_v<T, internal::Id128>) {
    for (size_t i = 0; i < value->size(); ++i) (*value)[i] = static_cast<uint8_t>(number + i);
  } else if constexpr (std::is_enum_v<T>) {
    *value = static_cast<T>(1 + number % (kNumValues<T> - 1));
  } else if constexpr (std::is_same_v<T, internal::Duration>) {
    *value = internal::Duration(1'000 + number);
  } else if constexpr (std::is_same_v<T, bool>) {
    *value = true;
  } else if constexpr (std::is_same_v<T, double>) {
    *value = number + 0.5;
  } else {
    const bool is_negative = kind == FieldKind::kSigned || kind == FieldKind::kZigZag;
    *value =
        static_cast<T>(is_negative ? -static_cast<int64_t>(number) : 1'000 + static_cast<int64_t>(number));
  }
}
template <HasFields Record>
Record Filled() {
  Record record;
  FillValue("", 0, FieldKind::kPlain, &record);
  return record;
}

// Returns the name that protobuf has for the type of a value.
template <typename T>
std::string ProtoTypeName(FieldKind kind) {
  if constexpr (internal::kIsOptional<T>) {
    using Value = typename T::value_type;
    const bool is_message = HasFields<Value> || std::is_same_v<Value, Status>;
    return (is_message ? "" : "optional_") + ProtoTypeName<Value>(kind);
  } else if constexpr (internal::kIsVector<T>) {
    return "repeated_" + ProtoTypeName<typename T::value_type>(kind);
  } else if constexpr (std::is_array_v<T>) {
    return "repeated_" + ProtoTypeName<std::remove_extent_t<T>>(kind);
  } else if constexpr (HasFields<T>) {
    return kFields<T>.message;
  } else if constexpr (std::is_same_v<T, Status>) {
    return "Status";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return kind == FieldKind::kBytes ? "bytes" : "string";
  } else if constexpr (std::is_same_v<T, internal::Id128>) {
    return "bytes";
  } else if constexpr (std::is_same_v<T, internal::Duration>) {
    return "uint64";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else {
    if (kind == FieldKind::kFixed) return "fixed64";
    if (kind == FieldKind::kZigZag) return "sint64";
    if (kind == FieldKind::kSigned) return "int32";
    return sizeof(T) == 8 ? "uint64" : "uint32";
  }
}

// Appends a line for each field of a record and of the records in it: the path, the number, protobuf's type
// and the value (text in hexadecimal digits). Derived fields have number 0.
template <typename T>
void DescribeValue(const std::string& path, uint32_t number, FieldKind kind, const T& value,
                   std::string* out) {
  const auto line = [&](const std::string& type, const std::string& text) {
    *out += path + " " + std::to_string(number) + " " + type + " " + text + "\n";
  };
  const auto hex = [](std::string_view bytes) {
    std::string digits = "x";
    for (const char byte : bytes) {
      for (const int shift : {4, 0}) digits += "0123456789abcdef"[static_cast<uint8_t>(byte) >> shift & 15];
    }
    return digits;
  };
  const std::string type = ProtoTypeName<T>(kind);
  if constexpr (internal::kIsOptional<T>) {
    if (!value) return line(type, "absent");
    std::string lines;
    DescribeValue(path, number, kind, *value, &lines);
    // A scalar has one line, whose type lacks the word "optional".
    if (type.starts_with("optional_")) lines.insert(lines.find(' ', path.size() + 1) + 1, "optional_");
    *out += lines;
  } else if constexpr (std::is_same_v<T, std::vector<uint64_t>>) {
    std::string numbers;
    for (const uint64_t each : value) numbers += (numbers.empty() ? "" : ",") + std::to_string(each);
    line(type, numbers);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::string joined;
    for (size_t i = 0; i < value.size(); ++i) joined += (i == 0 ? "" : ",") + value[i];
    line(type, joined);
  } else if constexpr (internal::kIsVector<T>) {
    line(type, std::to_string(value.size()));
    for (size_t i = 0; i < value.size(); ++i) {
      DescribeValue(path + "[" + std::to_string(i) + "]", number, kind, value[i], out);
    }
  } else if constexpr (std::is_array_v<T>) {
    std::string lines;
    size_t count = 0;
    for (size_t i = 0; i < std::extent_v<T>; ++i) {
      if (internal::IsZero(value[i])) continue;
      const std::string element = path + "[" + std::to_string(count++) + "]";
      DescribeValue(element, number, kind, value[i], &lines);
      lines += element + ".reason 1 uint32 " + std::to_string(i) + "\n";
    }
    line(type, std::to_string(count));
    *out += lines;
  } else if constexpr (HasFields<T>) {
    if (!path.empty()) line(type, "message");
    ForEachField<T>([&](const auto& field) {
      DescribeValue(path + (path.empty() ? "" : ".") + field.name, field.number, field.kind, field(value),
                    out);
    });
  } else if constexpr (std::is_same_v<T, Status>) {
    const internal::StatusRecord record{.code = static_cast<uint32_t>(value.code()),
                                        .detail = static_cast<uint32_t>(value.detail()),
                                        .message = std::string(value.message())};
    DescribeValue(path, number, kind, record, out);
  } else if constexpr (std::is_same_v<T, std::string>) {
    line(type, hex(value));
  } else if constexpr (std::is_same_v<T, internal::Id128>) {
    // Zeros are not sent.
    line(type, value == T{} ? "x" : hex({reinterpret_cast<const char*>(value.data()), value.size()}));
  } else if constexpr (std::is_same_v<T, internal::Duration>) {
    line(type, std::to_string(value.count()));
  } else if constexpr (std::is_same_v<T, double>) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    line(type, text);
  } else {
    line(std::is_enum_v<T> ? "uint32" : type,
         std::to_string(+static_cast<std::conditional_t<std::is_enum_v<T>, uint32_t, T>>(value)));
  }
}
template <HasFields Record>
std::string Describe(const Record& record) {
  std::string lines;
  DescribeValue("", 0, FieldKind::kPlain, record, &lines);
  return lines;
}

// Filled messages that the other side of a stream accepts.
inline internal::Hello ExampleHello() {
  auto hello = Filled<internal::Hello>();
  hello.min_version = 1;
  hello.max_version = 3;
  return hello;
}
inline internal::Welcome ExampleWelcome() {
  auto welcome = Filled<internal::Welcome>();
  welcome.version = 1;
  return welcome;
}
inline internal::SampleStreamMessage ExampleSampleRequest() {
  auto message = Filled<internal::SampleStreamMessage>();
  message.hello = ExampleHello();
  message.request.timeout = internal::Duration(0);
  return message;
}

inline internal::Sample SampleWithoutData(internal::Random* random) {
  return {.key = random->Next(),
          .priority = random->Unit(),
          .probability = random->Unit(),
          .table_size = static_cast<int64_t>(random->Below(1 << 20)),
          .inserted_at = static_cast<int64_t>(random->Next()),
          .times_sampled = static_cast<int32_t>(random->Below(100)),
          .rate_limited = random->Below(2) == 0,
          .lease_id = random->Next(),
          .trajectory = {}};
}

// Makes samples of the given chunks; all samples have the same columns.
inline std::vector<internal::Sample> RandomSamples(const std::vector<internal::ChunkRef>& chunks,
                                                   const std::vector<uint32_t>& columns, size_t count,
                                                   internal::Random* random) {
  std::vector<internal::Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    samples.push_back(SampleWithoutData(random));
    samples.back().trajectory = RandomTrajectory(chunks, columns, random);
  }
  return samples;
}

// Makes a batch: samples of the same columns, lengths and shapes, each from a random chunk. `lengths`: rows
// of the columns, by position; columns of one row are squeezed. REQUIRES: every chunk has that many rows.
inline std::vector<internal::Sample> UniformBatch(const std::vector<internal::ChunkRef>& chunks,
                                                  const std::vector<uint32_t>& columns,
                                                  const std::vector<uint32_t>& lengths, size_t count,
                                                  internal::Random* random) {
  std::vector<internal::Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    std::vector<internal::ColumnSpec> specs(columns.size());
    for (size_t c = 0; c < columns.size(); ++c) {
      // Sometimes in two slices, possibly of different chunks.
      const uint32_t first = lengths[c] > 1 && random->Below(2) == 0 ? 1 : lengths[c];
      for (const uint32_t length : {first, lengths[c] - first}) {
        if (length == 0) continue;
        const internal::ChunkRef& chunk = chunks[random->Below(chunks.size())];
        const auto offset = static_cast<uint32_t>(random->Below(chunk->header().rows() - length + 1));
        specs[c].slices.push_back({chunk, columns[c], offset, length});
      }
      specs[c].squeeze = lengths[c] == 1;
    }
    samples.push_back(SampleWithoutData(random));
    samples.back().trajectory = internal::Trajectory::Create(specs).value();
  }
  return samples;
}

}  // namespace reverb::test

#endif  // REVERB_TRANSPORT_WIRE_TESTING_H_
