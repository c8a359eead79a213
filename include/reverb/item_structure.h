// item_structure.h — the nested structure of an item's columns.
//
// A Signature with None at every leaf: dicts, lists, tuples and namedtuples, but neither dtypes nor shapes. A
// writer sends it to its table, so that batches can have the same nest if the table has no signature.
//
//   auto nest = Signature::Dict({{"action", {}}, {"observation", {}}}).value();
//   const ItemStructure structure = ItemStructure::Create(nest).value();
//   writer.CreateItem("replay", 1.0, columns, structure);  // the columns in flat order, see signature.h
//
// Create one and use it for all items: a writer sends it once. Threads: a value; may be read from any thread.
#ifndef REVERB_ITEM_STRUCTURE_H_
#define REVERB_ITEM_STRUCTURE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/signature.h"
#include "reverb/status.h"

namespace reverb {

class ItemStructure {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 10;  // encoded

  ItemStructure() = default;  // unknown
  // INVALID_ARGUMENT when a leaf is not None; RESOURCE_EXHAUSTED beyond kMaxBytes.
  static Result<ItemStructure> Create(const Signature& nest);
  // A dict with one column for each name. The columns of an item are then in the order of the sorted names.
  static Result<ItemStructure> Named(std::vector<std::string> names);
  // Decodes encoded(). Safe for untrusted bytes: DATA_LOSS when they are not such a structure.
  static Result<ItemStructure> Decode(std::string_view bytes);

  explicit operator bool() const { return encoded_ != nullptr; }
  // Returns EncodeSignature() of the nest; empty when the structure is unknown.
  std::string_view encoded() const { return encoded_ ? std::string_view(*encoded_) : std::string_view(); }

  // Returns the path of each column, in flat order: "obs/0/pixels". The path of a single column without a nest
  // is empty. Returns no paths when the structure is unknown.
  std::vector<std::string> ColumnNames() const;

  // Returns whether both are copies of one object, by comparing pointers. Others may still be equal.
  bool IsCopyOf(const ItemStructure& other) const { return encoded_ == other.encoded_; }
  friend bool operator==(const ItemStructure& a, const ItemStructure& b) {
    return a.IsCopyOf(b) || a.encoded() == b.encoded();
  }

 private:
  explicit ItemStructure(std::string encoded)
      : encoded_(std::make_shared<const std::string>(std::move(encoded))) {}
  std::shared_ptr<const std::string> encoded_;  // null: unknown
};

}  // namespace reverb

#endif  // REVERB_ITEM_STRUCTURE_H_
