// wire_fields.h — encodes and decodes messages by their field lists (message_fields.h).
//
// A field with the default value of proto3 is not written; a nested message and a present optional always
// are. Decoding merges into the record: the last value of a field counts, repeated fields and nested records
// accumulate, and optional records, statuses and elements of arrays are replaced. An absent field is 0 or
// empty, whatever default the C++ struct has.
//
// Threads: free functions without state.
#ifndef REVERB_TRANSPORT_WIRE_FIELDS_H_
#define REVERB_TRANSPORT_WIRE_FIELDS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "reverb/fields.h"
#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "tensor/proto_reader.h"
#include "transport/message_fields.h"
#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_writer.h"

namespace reverb::internal {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

// Called when all fields of a message were read: computes what is not sent.
template <typename Record>
void FinishDecoding(Record* /*record*/) {}
void FinishDecoding(TableInfo* info);
void FinishDecoding(Rejection* rejection);

// Returns whether all fields of a record of numbers are 0.
template <HasFields Record>
bool IsZero(const Record& record) {
  bool is_zero = true;
  ForEachField<Record>([&](const auto& field) { is_zero &= field(record) == 0; });
  return is_zero;
}

// --- Encoding ---

template <HasFields Record>
void WriteFields(const Record& record, WireWriter* writer);

// `is_optional`: writes the default value too.
template <typename T>
void WriteValue(uint32_t number, FieldKind kind, const T& value, bool is_optional, WireWriter* writer) {
  const auto write_uint = [&](uint64_t wide) {
    return is_optional ? writer->AlwaysUint(number, wide) : writer->Uint(number, wide);
  };
  if constexpr (kIsOptional<T>) {
    if (value) WriteValue(number, kind, *value, /*is_optional=*/true, writer);
  } else if constexpr (std::is_same_v<T, std::vector<uint64_t>>) {
    writer->PackedFixed64(number, value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    for (const std::string& each : value) writer->AlwaysBytes(number, each);
  } else if constexpr (kIsVector<T>) {
    for (const auto& each : value) WriteValue(number, kind, each, is_optional, writer);
  } else if constexpr (std::is_array_v<T>) {
    // Only the elements that have a value, each with its index as field 1.
    for (uint32_t i = 0; i < std::extent_v<T>; ++i) {
      if (IsZero(value[i])) continue;
      const auto nested = writer->Begin(number);
      writer->Uint(1, i);
      WriteFields(value[i], writer);
      writer->End(nested);
    }
  } else if constexpr (std::is_same_v<T, std::string>) {
    is_optional ? writer->AlwaysBytes(number, value) : writer->Bytes(number, value);
  } else if constexpr (std::is_same_v<T, Id128>) {
    if (value == Id128{}) return;
    writer->Bytes(number, {reinterpret_cast<const char*>(value.data()), value.size()});
  } else if constexpr (std::is_same_v<T, double>) {
    writer->Double(number, value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    write_uint(static_cast<uint64_t>(std::max<int64_t>(value.count(), 0)));
  } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
    write_uint(static_cast<uint64_t>(value));
  } else if constexpr (std::is_unsigned_v<T>) {
    kind == FieldKind::kFixed ? writer->Fixed64(number, value) : write_uint(value);
  } else if constexpr (std::is_integral_v<T>) {
    if (kind == FieldKind::kZigZag) {
      write_uint(ZigZag(value));
    } else if (kind == FieldKind::kSigned) {
      writer->Int(number, value);
    } else {
      write_uint(static_cast<uint64_t>(std::max<T>(value, 0)));
    }
  } else {
    const auto nested = writer->Begin(number);
    if constexpr (std::is_same_v<T, Status>) {
      WriteStatus(value, writer);
    } else {
      WriteFields(value, writer);
    }
    writer->End(nested);
  }
}

// Writes the fields of a message without its own tag and length.
template <HasFields Record>
void WriteFields(const Record& record, WireWriter* writer) {
  ForEachField<Record>([&](const auto& field) {
    if (field.number == 0) return;
    WriteValue(field.number, field.kind, field(record), /*is_optional=*/false, writer);
  });
}

template <HasFields Record>
WireMessage EncodeFields(const Record& record, size_t expected_bytes = 0) {
  WireWriter writer(expected_bytes);
  WriteFields(record, &writer);
  return writer.Finish();
}

// --- Decoding ---

template <HasFields Record>
void ClearFields(Record* record);
template <HasFields Record>
Status ReadFields(ProtoReader reader, const WireLimits& limits, Record* record);

template <typename T>
void ClearValue(T* value) {
  if constexpr (HasFields<T>) {
    ClearFields(value);
  } else if constexpr (std::is_array_v<T>) {
    for (auto& each : *value) ClearValue(&each);
  } else {
    *value = T{};
  }
}

// Sets all fields to what a message without fields means.
template <HasFields Record>
void ClearFields(Record* record) {
  ForEachField<Record>([&](const auto& field) { ClearValue(&field(*record)); });
}

inline size_t MaxLength(FieldLimit limit, const WireLimits& limits) {
  switch (limit) {
    case FieldLimit::kText:
      return limits.max_text_bytes;
    case FieldLimit::kSignature:
      return limits.max_signature_bytes;
    case FieldLimit::kStructure:
      return ItemStructure::kMaxBytes;
    case FieldLimit::kRowState:
      return RowTableOptions::kMaxStateBytes;
    default:
      return limits.max_name_bytes;
  }
}

inline size_t MaxCount(FieldLimit limit, const WireLimits& limits) {
  return limit == FieldLimit::kUpdates ? limits.max_updates : limits.max_items;
}

template <typename T>
Status ReadNested(ProtoReader reader, const WireLimits& limits, T* value) {
  if constexpr (std::is_same_v<T, Status>) {
    return ParseStatus(reader, limits, value);
  } else {
    return ReadFields(reader, limits, value);
  }
}

// Reads an element of an array, whose field 1 is its index; skips indices of newer peers.
template <typename T, size_t kSize>
Status ReadElement(ProtoReader reader, const WireLimits& limits, T (*values)[kSize]) {
  uint32_t index = 0;
  ProtoReader scan = reader;
  while (scan.Next()) {
    if (scan.field() == 1) scan.Read(&index);
  }
  REVERB_RETURN_IF_ERROR(scan.status(kFields<T>.message));
  T value;
  ClearFields(&value);
  REVERB_RETURN_IF_ERROR(ReadFields(reader, limits, &value));
  if (index < kSize) (*values)[index] = value;
  return Status::Ok();
}

// Whether a value is read by ReadScalar(), which leaves errors to the reader.
template <typename T>
inline constexpr bool kIsScalar =
    !kIsOptional<T> && !kIsVector<T> && !std::is_array_v<T> && !HasFields<T> && !std::is_same_v<T, Status>;

template <typename F, typename T>
void ReadScalar(const F& field, const WireLimits& limits, ProtoReader* reader, T* value) {
  if constexpr (std::is_same_v<T, std::string>) {
    reader->Read(value, MaxLength(field.limit, limits));
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(kNumValues<T> > 0);
    uint32_t number = 0;
    reader->Read(&number);
    *value = static_cast<T>(number < kNumValues<T> ? number : 0);
  } else if constexpr (std::is_same_v<T, Duration>) {
    int64_t nanos = 0;
    ReadScalar(field, limits, reader, &nanos);
    *value = Duration(nanos);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    field.kind == FieldKind::kFixed ? reader->ReadFixed(value) : reader->Read(value);
  } else if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
    if (field.kind == FieldKind::kSigned) {
      reader->ReadInt(value);
    } else if (field.kind == FieldKind::kSaturating || field.kind == FieldKind::kZigZag) {
      uint64_t wide = 0;
      reader->Read(&wide);
      if (!reader->ok()) return;
      *value = static_cast<T>(field.kind == FieldKind::kZigZag
                                  ? UnZigZag(wide)
                                  : static_cast<int64_t>(std::min<uint64_t>(
                                        wide, static_cast<uint64_t>(std::numeric_limits<T>::max()))));
    } else {
      reader->ReadCount(value);
    }
  } else {
    reader->Read(value);
  }
}

template <typename F, typename T>
Status ReadValue(const F& field, const char* message, const WireLimits& limits, ProtoReader* reader,
                 T* value) {
  if constexpr (kIsOptional<T>) {
    ClearValue(&value->emplace());
    return ReadValue(field, message, limits, reader, &**value);
  } else if constexpr (std::is_same_v<T, std::vector<uint64_t>>) {
    const size_t max_count = MaxCount(field.limit, limits);
    reader->ReadFixed64s([&](uint64_t each) { value->push_back(each); });
    return value->size() > max_count ? TooMany(message, field.name, max_count) : Status::Ok();
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    const size_t max_count = MaxCount(field.limit, limits);
    if (value->size() >= max_count) return TooMany(message, field.name, max_count);
    reader->Read(&value->emplace_back(), limits.max_name_bytes);
    return Status::Ok();
  } else if constexpr (kIsVector<T>) {
    const size_t max_count = MaxCount(field.limit, limits);
    if (value->size() >= max_count) return TooMany(message, field.name, max_count);
    ClearValue(&value->emplace_back());
    return ReadNested(reader->ReadMessage(), limits, &value->back());
  } else if constexpr (std::is_array_v<T>) {
    return ReadElement(reader->ReadMessage(), limits, value);
  } else if constexpr (HasFields<T> || std::is_same_v<T, Status>) {
    return ReadNested(reader->ReadMessage(), limits, value);
  } else {
    ReadScalar(field, limits, reader, value);
    return Status::Ok();
  }
}

// Reads the rest of `reader` and merges it into `*record`.
template <HasFields Record>
Status ReadFields(ProtoReader reader, const WireLimits& limits, Record* record) {
  constexpr const char* kMessage = kFields<Record>.message;
  Status status;
  while (reader.Next()) {
    const uint32_t number = reader.field();
    ForEachField<Record>([&](const auto& field) {
      if (field.number != number) return;
      auto& value = field(*record);
      if constexpr (kIsScalar<std::remove_reference_t<decltype(value)>>) {
        ReadScalar(field, limits, &reader, &value);
      } else {
        status = ReadValue(field, kMessage, limits, &reader, &value);
      }
    });
    if (!status.ok()) return status;
  }
  FinishDecoding(record);
  return reader.status(kMessage);
}

// Reads a record of its own, not merged into another.
template <HasFields Record>
Status ReadNewFields(ProtoReader reader, const WireLimits& limits, Record* record) {
  ClearFields(record);
  return ReadFields(reader, limits, record);
}

template <HasFields Record>
Result<Record> DecodeFields(ByteSlices slices, const WireLimits& limits) {
  const ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kFields<Record>.message, limits));
  Record record;
  REVERB_RETURN_IF_ERROR(ReadNewFields(reader, limits, &record));
  return record;
}

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_WIRE_FIELDS_H_
