// item_signature.h — does an item keep what its table promises?
#ifndef REVERB_CLIENT_ITEM_SIGNATURE_H_
#define REVERB_CLIENT_ITEM_SIGNATURE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/writer.h"

namespace reverb::internal {

// A column of an item, as a signature sees it.
struct ItemColumnSpec {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> row_dims;
  std::optional<int64_t> length;  // the leading dimension; absent when squeezed
};

// INVALID_ARGUMENT, with both signatures in the text, when the columns do not match the table's.
Status CheckItemSignature(const TableSignatures& signatures, std::string_view table,
                          std::span<const ItemColumnSpec> columns);

// For items of whole steps: the signature may describe a step as well as the item.
Status CheckStepSignature(const TableSignatures& signatures, std::string_view table,
                          std::span<const ItemColumnSpec> columns);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ITEM_SIGNATURE_H_
