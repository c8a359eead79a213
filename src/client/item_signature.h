// item_signature.h — checks an item against the signature of its table.
#ifndef REVERB_CLIENT_ITEM_SIGNATURE_H_
#define REVERB_CLIENT_ITEM_SIGNATURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/writer.h"

namespace reverb::internal {

// The properties of an item's column that a signature specifies.
struct ItemColumnSpec {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> row_dims;
  std::optional<int64_t> length;  // the leading dimension; absent if squeezed
};

// Checks the items of one writer. Holds the signatures itself, so that an item that matches takes no lock.
// Threads: one at a time.
class SignatureCheck {
 public:
  // Without a source, there is nothing to check.
  explicit SignatureCheck(std::shared_ptr<SignatureSource> source)
      : source_(std::move(source)), known_(source_ ? source_->current() : nullptr) {}

  explicit operator bool() const { return source_ != nullptr; }

  // Returns INVALID_ARGUMENT, with both signatures in the message, if the columns do not match the table's:
  // also not after the source has fetched the signatures again. UNAVAILABLE or another error if it cannot, and
  // the table is not known.
  Status CheckItem(std::string_view table, std::span<const ItemColumnSpec> columns) {
    return Check(table, columns, false);
  }
  // For items of whole steps: the signature may describe either a step or the item.
  Status CheckStep(std::string_view table, std::span<const ItemColumnSpec> columns) {
    return Check(table, columns, true);
  }

 private:
  Status Check(std::string_view table, std::span<const ItemColumnSpec> columns, bool may_describe_a_step);

  std::shared_ptr<SignatureSource> source_;
  std::shared_ptr<const TableSignatures> known_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ITEM_SIGNATURE_H_
