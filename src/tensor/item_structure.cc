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

Result<ItemStructure> ItemStructure::Named(std::vector<std::string> names) {
  std::vector<Signature::Field> fields;
  fields.reserve(names.size());
  for (std::string& name : names) fields.emplace_back(std::move(name), Signature());
  REVERB_ASSIGN_OR_RETURN(const Signature nest, Signature::Dict(std::move(fields)));
  return Create(nest);
}

namespace {

void AddColumnNames(const Signature& nest, const std::string& path, std::vector<std::string>* names) {
  if (nest.kind() == Signature::Kind::kNone) return names->push_back(path);
  const std::span<const std::string> keys = nest.keys();
  for (size_t i = 0; i < nest.children().size(); ++i) {
    const std::string key = keys.empty() ? std::to_string(i) : keys[i];
    AddColumnNames(nest.children()[i], path.empty() ? key : path + "/" + key, names);
  }
}

}  // namespace

std::vector<std::string> ItemStructure::ColumnNames() const {
  std::vector<std::string> names;
  if (encoded_ == nullptr) return names;
  const Result<Signature> nest = DecodeSignature(*encoded_);
  if (nest.ok()) AddColumnNames(*nest, "", &names);
  return names;
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
