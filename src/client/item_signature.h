// item_signature.h — checks an item against the signature of its table.
#ifndef REVERB_CLIENT_ITEM_SIGNATURE_H_
#define REVERB_CLIENT_ITEM_SIGNATURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
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

// Returns INVALID_ARGUMENT, with both signatures in the message, if the columns do not match the table's.
// Reads *signatures again if they do not have the table.
Status CheckItemSignature(std::shared_ptr<const TableSignatures>* signatures, std::string_view table,
                          std::span<const ItemColumnSpec> columns);

// For items of whole steps: the signature may describe either a step or the item.
Status CheckStepSignature(std::shared_ptr<const TableSignatures>* signatures, std::string_view table,
                          std::span<const ItemColumnSpec> columns);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ITEM_SIGNATURE_H_
