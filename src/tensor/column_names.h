// column_names.h — the names of a table's columns, for error messages.
#ifndef REVERB_TENSOR_COLUMN_NAMES_H_
#define REVERB_TENSOR_COLUMN_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "reverb/signature.h"

namespace reverb::internal {

// Returns the names of the signature's leaves; without a signature, those of the structure that writers sent (see
// TableInfo::structure). Empty if neither has names.
std::vector<std::string> ColumnNamesOf(const Signature* signature, std::string_view structure);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_COLUMN_NAMES_H_
