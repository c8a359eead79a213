#include "core/table_layout.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

// Longer descriptions of a layout are cut.
constexpr size_t kMaxTextBytes = 2000;

// Counts the columns of a nest, which are its Nones.
size_t NumColumns(const Signature& nest) {
  if (nest.kind() == Signature::Kind::kNone) return 1;
  size_t count = 0;
  for (const Signature& child : nest.children()) count += NumColumns(child);
  return count;
}

bool IsSequence(const Signature& nest) {
  return nest.kind() == Signature::Kind::kList || nest.kind() == Signature::Kind::kTuple;
}

// Returns whether the nests are equal. A list and a tuple count as equal.
bool SameNest(const Signature& a, const Signature& b) {
  if (a.kind() != b.kind() && !(IsSequence(a) && IsSequence(b))) return false;
  if (a.type_name() != b.type_name() || !std::ranges::equal(a.keys(), b.keys())) return false;
  return std::ranges::equal(a.children(), b.children(), SameNest);
}

Signature NestOf(const ItemStructure& structure) {
  const Result<Signature> nest = DecodeSignature(structure.encoded());
  return nest.ok() ? *nest : Signature();
}

// Returns the nest, or the value in it if it is a list or tuple of one.
Signature WithoutListOfOne(Signature nest) {
  return IsSequence(nest) && nest.children().size() == 1 ? nest.children()[0] : nest;
}

// A single column has no name in any case, be it in a list or not.
bool SameStructure(const ItemStructure& a, const ItemStructure& b) {
  return a == b || SameNest(WithoutListOfOne(NestOf(a)), WithoutListOfOne(NestOf(b)));
}

std::shared_ptr<const TableLayout::DTypes> DTypesOf(const Trajectory& item) {
  auto dtypes = std::make_shared<TableLayout::DTypes>();
  for (uint32_t c = 0; c < item.num_columns(); ++c) dtypes->push_back(item.column_view(c).dtype);
  return dtypes;
}

// Writes "{action: int32, obs: [float32, uint8]}", taking the dtypes in order.
class LayoutWriter {
 public:
  explicit LayoutWriter(std::span<const DType> dtypes) : dtypes_(dtypes) {}

  std::string Write(const Signature& nest) {
    Add(nest);
    return Finish();
  }
  std::string WriteFlat() {
    text_ += '[';
    for (size_t i = 0; i < dtypes_.size() && !IsFull(); ++i) {
      if (i > 0) text_ += ", ";
      AddColumn();
    }
    text_ += ']';
    return Finish();
  }

 private:
  bool IsFull() const { return text_.size() > kMaxTextBytes; }
  std::string Finish() {
    if (!IsFull()) return std::move(text_);
    return text_.substr(0, kMaxTextBytes) + "…";
  }
  void AddColumn() { text_ += next_ < dtypes_.size() ? DTypeName(dtypes_[next_++]) : "?"; }
  void Add(const Signature& nest) {
    using Kind = Signature::Kind;
    if (IsFull()) return;
    if (nest.kind() == Kind::kNone) return AddColumn();
    const bool has_keys = nest.kind() == Kind::kDict || nest.kind() == Kind::kNamedTuple;
    const bool is_dict = nest.kind() == Kind::kDict;
    text_ += nest.type_name();
    text_ += is_dict ? '{' : nest.kind() == Kind::kList ? '[' : '(';
    for (size_t i = 0; i < nest.children().size(); ++i) {
      if (i > 0) text_ += ", ";
      if (has_keys) text_ += nest.keys()[i] + (is_dict ? ": " : "=");
      Add(nest.children()[i]);
    }
    if (nest.kind() == Kind::kTuple && nest.children().size() == 1) text_ += ',';
    text_ += is_dict ? '}' : nest.kind() == Kind::kList ? ']' : ')';
  }

  const std::span<const DType> dtypes_;
  size_t next_ = 0;
  std::string text_;
};

std::string Describe(const ItemStructure& structure, const TableLayout::DTypes& dtypes) {
  return structure ? LayoutWriter(dtypes).Write(NestOf(structure)) : LayoutWriter(dtypes).WriteFlat();
}

}  // namespace

TableLayout::TableLayout(const TableOptions& options)
    : table_(options.name), policy_(options.layout), has_signature_(options.signature.has_value()) {}

Status TableLayout::CheckSlowly(const Item& item, Checked* last) {
  MutexLock lock(&mu_);
  const uint64_t resets = resets_.load(std::memory_order_relaxed);
  if (has_signature_ || policy_ == LayoutPolicy::kAny || is_ambiguous_) {
    if (!has_signature_) Observe(item.structure);
    *last = {.is_set = true, .structure = item.structure, .resets = resets};
    return Status::Ok();
  }
  last->is_set = false;
  REVERB_RETURN_IF_ERROR(CheckAgainstFirst(item));
  *last = {.is_set = true, .structure = item.structure, .resets = resets, .dtypes = dtypes_};
  return Status::Ok();
}

void TableLayout::Observe(const ItemStructure& structure) {
  if (!structure || is_ambiguous_) return;
  if (!structure_ || from_before_reset_) {
    structure_ = structure;
    from_before_reset_ = false;
    return;
  }
  if (SameStructure(structure_, structure)) return;
  is_ambiguous_ = true;
  Log(LogLevel::kInfo, "table \"" + table_ +
                           "\": writers inserted items of different layout, which layout=\"any\" allows; "
                           "items and batches are flat lists of columns until the table is reset");
}

Status TableLayout::CheckAgainstFirst(const Item& item) {
  // Ignores a nest that does not describe the item's columns.
  const bool has_nest = item.structure && NumColumns(NestOf(item.structure)) == item.trajectory.num_columns();
  if (from_before_reset_) {
    from_before_reset_ = false;
    structure_ = {};
    dtypes_ = nullptr;
  }
  if (dtypes_ != nullptr && !HasDTypes(item.trajectory, *dtypes_)) return Mismatch(item);
  if (structure_ && has_nest && !SameStructure(structure_, item.structure)) return Mismatch(item);
  if (!structure_ && has_nest) structure_ = item.structure;
  if (dtypes_ == nullptr) dtypes_ = DTypesOf(item.trajectory);
  return Status::Ok();
}

Status TableLayout::Mismatch(const Item& item) const {
  return Status::InvalidArgument(
      "table \"" + table_ + "\": the item has the layout " +
      Describe(item.structure, *DTypesOf(item.trajectory)) + ", but the table has " +
      Describe(structure_, dtypes_ != nullptr ? *dtypes_ : DTypes()) +
      ", that of its first item; write the item to another table, reset the table, "
      "or create the table with layout=\"any\"");
}

void TableLayout::Reset() {
  MutexLock lock(&mu_);
  if (is_ambiguous_) structure_ = {};
  is_ambiguous_ = false;
  from_before_reset_ = true;
  resets_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<std::string> TableLayout::structure() const {
  MutexLock lock(&mu_);
  if (is_ambiguous_) return std::string();
  if (!structure_) return std::nullopt;
  return std::string(structure_.encoded());
}

std::optional<std::string> TableLayout::structure_to_save() const {
  {
    MutexLock lock(&mu_);
    if (from_before_reset_) return std::nullopt;
  }
  return structure();
}

Status TableLayout::RestoreStructure(const std::optional<std::string>& saved) {
  if (!saved || has_signature_) return Status::Ok();
  MutexLock lock(&mu_);
  is_ambiguous_ = saved->empty();
  if (!is_ambiguous_) {
    REVERB_ASSIGN_OR_RETURN(structure_, ItemStructure::Decode(*saved));
  }
  return Status::Ok();
}

void TableLayout::RestoreDTypes(const Trajectory& item) {
  if (has_signature_) return;
  MutexLock lock(&mu_);
  dtypes_ = DTypesOf(item);
}

}  // namespace reverb::internal
