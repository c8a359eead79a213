#include "client/item_signature.h"

#include <string>
#include <utility>

namespace reverb {
namespace internal {
namespace {

bool DimMatches(int64_t expected, int64_t got) { return expected == Shape::kUnknownDim || expected == got; }

bool ShapeMatches(const Shape& expected, const ItemColumnSpec& column, bool with_length) {
  if (!expected.has_rank()) return true;
  size_t i = 0;
  const size_t leading = with_length && column.length.has_value();
  if (expected.rank() != leading + column.row_dims.size()) return false;
  if (leading && !DimMatches(expected.dim(i++), *column.length)) return false;
  for (const int64_t dim : column.row_dims) {
    if (!DimMatches(expected.dim(i++), dim)) return false;
  }
  return true;
}

std::string ToText(const std::vector<TensorSpec>& signature) {
  std::string text;
  for (size_t i = 0; i < signature.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(i) + ": " + ToString(signature[i]);
  }
  return text;
}

std::string ToText(std::span<const ItemColumnSpec> columns) {
  std::vector<TensorSpec> specs;
  for (const ItemColumnSpec& column : columns) {
    std::vector<int64_t> dims;
    if (column.length) dims.push_back(*column.length);
    dims.insert(dims.end(), column.row_dims.begin(), column.row_dims.end());
    specs.push_back({.name = {}, .dtype = column.dtype, .shape = Shape(std::move(dims))});
  }
  return ToText(specs);
}

Status Match(const TableSignatures& signatures, std::string_view table,
             std::span<const ItemColumnSpec> columns, bool may_describe_a_step) {
  const auto prefix = [&] { return "Unable to create item in table '" + std::string(table) + "' since "; };
  const auto found = signatures.find(table);
  if (found == signatures.end()) {
    std::string known;
    for (const auto& [name, signature] : signatures) known += (known.empty() ? "'" : ", '") + name + "'";
    return Status::InvalidArgument(prefix() + "the table could not be found. The server's tables: [" + known +
                                   "].");
  }
  if (!found->second) return Status::Ok();
  const std::vector<TensorSpec>& signature = *found->second;
  const auto mismatch = [&](const std::string& what) {
    return Status::InvalidArgument(
        prefix() + "the provided trajectory is inconsistent with the table signature: " + what +
        ".\n\nThe table signature is:\n\t" + ToText(signature) +
        "\n\nThe provided trajectory signature is:\n\t" + ToText(columns) + "\n");
  };
  if (signature.size() != columns.size()) {
    return mismatch("it has " + std::to_string(columns.size()) + " columns but the table signature has " +
                    std::to_string(signature.size()));
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const ItemColumnSpec& column = columns[i];
    const auto which = [&] {
      return "column " + (signature[i].name.empty() ? std::to_string(i) : "'" + signature[i].name + "'");
    };
    if (signature[i].dtype != column.dtype) {
      return mismatch(which() + " has dtype " + std::string(DTypeName(column.dtype)) + " but " +
                      std::string(DTypeName(signature[i].dtype)) + " is expected");
    }
    if (!ShapeMatches(signature[i].shape, column, true) &&
        !(may_describe_a_step && ShapeMatches(signature[i].shape, column, false))) {
      return mismatch(which() + " has a shape that is not compatible with " + signature[i].shape.ToString());
    }
  }
  return Status::Ok();
}

}  // namespace

Status SignatureCheck::Check(std::string_view table, std::span<const ItemColumnSpec> columns,
                             bool may_describe_a_step) {
  Status status = Match(*known_, table, columns, may_describe_a_step);
  if (status.ok()) [[likely]]
    return status;
  // Another writer of this source, such as the previous environment, may have fetched newer ones.
  if (auto current = source_->current(); current != known_) {
    known_ = std::move(current);
    status = Match(*known_, table, columns, may_describe_a_step);
    if (status.ok()) return status;
  }
  Result<std::shared_ptr<const TableSignatures>> fresh = source_->Refresh();
  if (!fresh.ok()) {
    if (known_->contains(table)) return status;  // as far as is known, the item does not match
    return fresh.status().Prefixed("Unable to create item in table '" + std::string(table) +
                                   "' since the table is not known yet, and its signature cannot be fetched");
  }
  if (*fresh == known_) return status;
  known_ = *std::move(fresh);
  return Match(*known_, table, columns, may_describe_a_step);
}

}  // namespace internal

SignatureSource::SignatureSource(TableSignatures signatures, Fetch fetch)
    : fetch_(std::move(fetch)), current_(std::make_shared<const TableSignatures>(std::move(signatures))) {}

std::shared_ptr<const TableSignatures> SignatureSource::current() const {
  const std::lock_guard lock(mu_);
  return current_;
}

Result<std::shared_ptr<const TableSignatures>> SignatureSource::Refresh() {
  if (!fetch_) return current();
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<const TableSignatures> fresh, fetch_());
  const std::lock_guard lock(mu_);
  current_ = fresh;
  return fresh;
}

}  // namespace reverb
