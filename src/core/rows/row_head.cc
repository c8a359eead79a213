#include "core/rows/row_head.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/utf8.h"

namespace reverb::internal {
namespace {

constexpr size_t kRowHeadBytes = sizeof(uint32_t) + sizeof(uint16_t);

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T ReadRaw(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

Status CheckRowName(std::string_view what, std::string_view name) {
  if (!name.empty() && name.size() <= RowTableOptions::kMaxKeyBytes && IsUtf8(name)) return Status::Ok();
  return Status::InvalidArgument("a " + std::string(what) + " must have 1 to " +
                                 std::to_string(RowTableOptions::kMaxKeyBytes) + " bytes of UTF-8, not " +
                                 std::to_string(name.size()));
}

Status CheckRowTags(std::span<const RowTag> tags) {
  if (tags.size() > RowTableOptions::kMaxTags) {
    return Status::InvalidArgument("a row has " + std::to_string(tags.size()) + " tags, more than " +
                                   std::to_string(RowTableOptions::kMaxTags));
  }
  for (const RowTag& tag : tags) {
    REVERB_RETURN_IF_ERROR(CheckRowName("tag", tag.name));
    const auto* const text = std::get_if<std::string>(&tag.value);
    if (text == nullptr || (text->size() <= RowTableOptions::kMaxTagBytes && IsUtf8(*text))) continue;
    return Status::InvalidArgument(
        "tag \"" + tag.name + "\" has a string of " + std::to_string(text->size()) + " bytes; give at most " +
        std::to_string(RowTableOptions::kMaxTagBytes) + " bytes of UTF-8, and larger values as columns");
  }
  return Status::Ok();
}

Result<uint16_t> RowNames::Add(std::string_view name) {
  if (const std::optional<uint16_t> found = Find(name)) return *found;
  if (names_.size() == kMaxNames) {
    return Status::ResourceExhausted("the table has " + std::to_string(kMaxNames) +
                                     " names of columns and tags already, and cannot add \"" +
                                     std::string(name) + "\"; put what varies into the values of tags");
  }
  const auto number = static_cast<uint16_t>(names_.size());
  names_.emplace_back(name);
  numbers_.emplace(name, number);
  return number;
}

RowHead::RowHead(std::string_view key, std::span<const RowTag> tags, const RowNames& names) {
  std::string bytes;
  AppendRaw(uint32_t{0}, &bytes);  // the size
  AppendRaw(static_cast<uint16_t>(key.size()), &bytes);
  bytes += key;
  for (size_t i = 0; i < tags.size(); ++i) {
    const auto is_same = [&](const RowTag& later) { return later.name == tags[i].name; };
    if (std::ranges::any_of(tags.subspan(i + 1), is_same)) continue;
    const std::optional<uint16_t> name = names.Find(tags[i].name);
    assert(name.has_value());
    AppendRaw(*name, &bytes);
    std::visit(
        [&](const auto& value) {
          using T = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<T, bool>) {
            AppendRaw(WhereValue::Kind::kBool, &bytes);
            AppendRaw(value, &bytes);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            AppendRaw(WhereValue::Kind::kInteger, &bytes);
            AppendRaw(value, &bytes);
          } else if constexpr (std::is_same_v<T, double>) {
            AppendRaw(WhereValue::Kind::kReal, &bytes);
            AppendRaw(value, &bytes);
          } else {
            AppendRaw(WhereValue::Kind::kText, &bytes);
            AppendRaw(static_cast<uint32_t>(value.size()), &bytes);
            bytes += value;
          }
        },
        tags[i].value);
  }
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &size, sizeof(size));
  block_ = std::make_unique_for_overwrite<char[]>(bytes.size());
  std::memcpy(block_.get(), bytes.data(), bytes.size());
}

std::string_view RowHead::key() const {
  if (block_ == nullptr) return {};
  return {block_.get() + kRowHeadBytes, ReadRaw<uint16_t>(block_.get() + sizeof(uint32_t))};
}

RowHead RowHead::Copy(const char* block) {
  RowHead head;
  const auto size = ReadRaw<uint32_t>(block);
  head.block_ = std::make_unique_for_overwrite<char[]>(size);
  std::memcpy(head.block_.get(), block, size);
  return head;
}

size_t RowHead::memory_bytes() const { return block_ == nullptr ? 0 : ReadRaw<uint32_t>(block_.get()); }

// Calls visit(name, value). Stops when it returns false.
template <typename Visit>
void RowHead::ForEachTag(Visit visit) const {
  if (block_ == nullptr) return;
  const char* at = block_.get() + kRowHeadBytes + key().size();
  const char* const end = block_.get() + memory_bytes();
  while (at < end) {
    const auto name = ReadRaw<uint16_t>(at);
    const auto kind = ReadRaw<WhereValue::Kind>(at + sizeof(uint16_t));
    at += sizeof(uint16_t) + sizeof(kind);
    WhereValue value;
    value.kind = kind;
    switch (kind) {
      case WhereValue::Kind::kBool:
        value.integer = ReadRaw<bool>(at) ? 1 : 0;
        at += sizeof(bool);
        break;
      case WhereValue::Kind::kInteger:
        value.integer = ReadRaw<int64_t>(at);
        at += sizeof(int64_t);
        break;
      case WhereValue::Kind::kReal:
        value.real = ReadRaw<double>(at);
        at += sizeof(double);
        break;
      default: {
        const auto size = ReadRaw<uint32_t>(at);
        value.text = {at + sizeof(size), size};
        at += sizeof(size) + size;
      }
    }
    if (!visit(name, value)) return;
  }
}

WhereValue RowHead::Tag(uint16_t name) const {
  WhereValue found;
  ForEachTag([&](uint16_t number, const WhereValue& value) {
    if (number != name) return true;
    // A stored NaN is missing, as any NaN.
    found = value.kind == WhereValue::Kind::kReal ? WhereValue::Real(value.real) : value;
    return false;
  });
  return found;
}

std::vector<RowTag> RowHead::Tags(std::span<const std::string> names) const {
  std::vector<RowTag> tags;
  ForEachTag([&](uint16_t name, const WhereValue& value) {
    RowTag tag{.name = names[name], .value = false};
    switch (value.kind) {
      case WhereValue::Kind::kBool:
        tag.value = value.integer != 0;
        break;
      case WhereValue::Kind::kInteger:
        tag.value = value.integer;
        break;
      case WhereValue::Kind::kReal:
        tag.value = value.real;
        break;
      default:
        tag.value = std::string(value.text);
    }
    tags.push_back(std::move(tag));
    return true;
  });
  return tags;
}

RowHead RowHead::SetTags(std::span<const RowTag> tags, const RowNames& names) {
  if (tags.empty()) return {};
  std::vector<RowTag> merged = Tags(names.all());
  merged.insert(merged.end(), tags.begin(), tags.end());
  const std::string copy(key());
  return std::exchange(*this, RowHead(copy, merged, names));
}

}  // namespace reverb::internal
