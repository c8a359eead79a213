// fields.h — lists the fields of a record once, for all code that visits every field.
//
//   ForEachField<TableInfo>([&](const auto& field) {
//     std::printf("%s is field %u\n", field.name, field.number);   // and field(info) is its value
//   });
//
// A list is a specialization of kFields, as in server_info_fields.h: name, number in the message, pointer to
// the member, and what the type alone does not determine.
//
// The encoding of messages (docs/protocol.md), the JSON of `reverb info`, the dicts of the Python package and
// the tests of all of these are generated from such lists; server_info_fields.h has those of the public
// records. A new field needs a line in the list and one in proto/reverb/v1/reverb.proto.
//
// Threads: constants.
#ifndef REVERB_FIELDS_H_
#define REVERB_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace reverb {

// How a value is represented, where its C++ type alone does not determine it.
enum class FieldKind : uint8_t {
  kPlain,       // a signed integer is a count, which is never negative; a string is text
  kBytes,       // a string of any bytes
  kNanos,       // a count of nanoseconds
  kSaturating,  // a count; one that is too large is read as the largest
  kSigned,      // an integer that may be negative: int32 in protobuf
  kZigZag,      // an integer that is negative as often as not: sint64 in protobuf
  kFixed,       // an integer that uses all of its bits: fixed64 in protobuf
};

// How much of a field a decoder accepts.
enum class FieldLimit : uint8_t {
  kDefault,    // the length of a name; the number of tables or items
  kText,       // the length of an error message or a path
  kSignature,  // the length of an encoded signature
  kStructure,  // the length of an encoded item structure
  kUpdates,    // the number of keys to update or delete
  kRowState,   // the length of the state that a caller keeps with a row table
};

// What SumOf() does with a number of several servers that act as one.
enum class FieldSum : uint8_t {
  kAdd,       // a count, a size or a rate
  kFirst,     // a setting: that of the first server
  kFirstSet,  // that of the first server where it is not 0
  kLeast,
  kLargest,
};

// Members: pointers to members, which lead from the record to the value: one, or two for a value in a nested
// struct whose fields are sent as fields of the record itself.
template <typename... Members>
struct Field {
  constexpr Field(const char* field_name, uint32_t field_number, Members... members)
      : name(field_name), number(field_number), path(members...), json_name(field_name) {}

  // Returns a copy with another kind, limit, sum or name in JSON; NotInJson() leaves the field out of the JSON.
  constexpr Field As(FieldKind new_kind) const {
    Field field = *this;
    field.kind = new_kind;
    return field;
  }
  constexpr Field AsBytes(FieldLimit new_limit) const { return As(FieldKind::kBytes).UpTo(new_limit); }
  constexpr Field UpTo(FieldLimit new_limit) const {
    Field field = *this;
    field.limit = new_limit;
    return field;
  }
  constexpr Field InSum(FieldSum new_sum) const {
    Field field = *this;
    field.sum = new_sum;
    return field;
  }
  constexpr Field Json(std::string_view new_name) const {
    Field field = *this;
    field.json_name = new_name;
    return field;
  }
  constexpr Field NotInJson() const { return Json(""); }
  // Returns a copy whose value, a record, has its fields shown in place of it, in JSON and in Python.
  constexpr Field Flat() const {
    Field field = *this;
    field.is_flat = true;
    return field;
  }

  // Returns the value in `record`, which may be const.
  template <typename Record>
  constexpr auto& operator()(Record& record) const {
    return std::apply(
        [&](auto... members) -> auto& { return (record.*....*members); }, path);
  }

  const char* name;  // in the protobuf message and in Python
  uint32_t number;   // in the protobuf message; 0: computed by the reader instead of being sent
  std::tuple<Members...> path;
  FieldKind kind = FieldKind::kPlain;
  FieldLimit limit = FieldLimit::kDefault;
  FieldSum sum = FieldSum::kAdd;  // of numbers; other values are those of the first server
  std::string_view json_name;     // empty: not in the JSON
  bool is_flat = false;           // shown as the fields of the nested record
};

template <typename... Fields>
struct FieldList {
  constexpr explicit FieldList(const char* message_name, Fields... list)
      : message(message_name), fields(list...) {}

  // Returns whether no two fields have the same name or, unless it is 0, the same number.
  constexpr bool IsConsistent() const {
    return std::apply(
        [](const auto&... field) {
          const std::string_view names[] = {field.name...};
          const uint32_t numbers[] = {field.number...};
          for (size_t i = 0; i < sizeof...(field); ++i) {
            for (size_t k = 0; k < i; ++k) {
              if (names[i] == names[k] || (numbers[i] != 0 && numbers[i] == numbers[k])) return false;
            }
          }
          return true;
        },
        fields);
  }

  const char* message;           // the name of the protobuf message
  std::tuple<Fields...> fields;  // in the order in which they are shown
};

// The list of a record: specialized for each. The order of the fields is that of JSON and of Python's dicts.
template <typename Record>
inline constexpr std::nullptr_t kFields = nullptr;

template <typename Record>
concept HasFields = !std::is_same_v<std::remove_cvref_t<decltype(kFields<Record>)>, std::nullptr_t>;

// The number of values of an enum that fields have. A larger number, of a newer peer, is read as 0.
template <typename Enum>
inline constexpr uint32_t kNumValues = 0;

// Calls visit(field) for each field of a record.
template <HasFields Record, typename Visit>
constexpr void ForEachField(Visit&& visit) {
  static_assert(kFields<Record>.IsConsistent());
  std::apply([&](const auto&... field) { (visit(field), ...); }, kFields<Record>.fields);
}

}  // namespace reverb

#endif  // REVERB_FIELDS_H_
