#include "reverb/item_structure.h"

namespace reverb {

Result<ItemStructure> ItemStructure::Create(const Signature& nest) {
  if (nest.num_leaves() > 0) {
    return Status::InvalidArgument("the structure " + nest.ToString() +
                                   " has specs at its leaves; it must have None there");
  }
  std::string encoded = EncodeSignature(nest);
  if (encoded.size() > kMaxBytes) {
    return Status::ResourceExhausted("the structure of an item takes " + std::to_string(encoded.size()) +
                                     " bytes, at most " + std::to_string(kMaxBytes) +
                                     " are allowed; use fewer or shorter names");
  }
  return ItemStructure(std::move(encoded));
}

Result<ItemStructure> ItemStructure::Decode(std::string_view bytes) {
  const auto damaged = [](std::string_view why) {
    return Status::DataLoss("the structure of items: " + std::string(why)).WithDetail(Detail::kCorruptData);
  };
  if (bytes.size() > kMaxBytes) {
    return damaged("it takes " + std::to_string(bytes.size()) + " bytes, at most " +
                   std::to_string(kMaxBytes) + " are allowed");
  }
  const Result<Signature> nest = DecodeSignature(bytes);
  if (!nest.ok()) return damaged(nest.status().message());
  Result<ItemStructure> structure = Create(*nest);
  if (!structure.ok()) return damaged(structure.status().message());
  return structure;
}

}  // namespace reverb
