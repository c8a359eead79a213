#include "tensor/column_names.h"

#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/tensor.h"

namespace reverb::internal {

std::vector<std::string> ColumnNamesOf(const Signature* signature, std::string_view structure) {
  std::vector<std::string> names;
  if (signature != nullptr) {
    const Result<std::vector<TensorSpec>> specs = signature->Flatten();
    if (!specs.ok()) return names;
    for (const TensorSpec& spec : *specs) names.push_back(spec.name);
    return names;
  }
  const Result<ItemStructure> decoded = ItemStructure::Decode(structure);
  return decoded.ok() ? decoded->ColumnNames() : names;
}

}  // namespace reverb::internal
