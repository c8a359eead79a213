// where_fuzz.cc — expressions from untrusted text. One that parses can be evaluated for any row, and parses again;
// an error names a place.
#include <string>
#include <string_view>

#include "core/rows/where.h"
#include "fuzz_target.h"

namespace {

using reverb::internal::Where;
using reverb::internal::WhereField;
using reverb::internal::WhereRows;
using reverb::internal::WhereValue;

// Rows whose values follow from their number and the name, so that every type meets every operator.
class SyntheticRows : public WhereRows {
 public:
  explicit SyntheticRows(bool is_complete) : is_complete_(is_complete) {}
  size_t size() const override { return 3; }
  bool is_complete() const override { return is_complete_; }
  WhereValue Field(size_t row, WhereField field) const override {
    return field == WhereField::kKey ? WhereValue::Text("key") : Tag(row, 3);
  }
  WhereValue Tag(size_t row, size_t name) const override {
    switch ((row + name) % 6) {
      case 0:
        return WhereValue::Missing();
      case 1:
        return WhereValue::Bool(row == 1);
      case 2:
        return WhereValue::Integer(INT64_MIN + static_cast<int64_t>(row));
      case 3:
        return WhereValue::Integer(INT64_MAX - static_cast<int64_t>(row));
      case 4:
        return WhereValue::Real(1e308 * static_cast<double>(row));
      default:
        return WhereValue::Text("text");
    }
  }
  bool HasColumn(size_t row, size_t name) const override { return (row + name) % 2 == 0; }
  WhereValue Length(size_t row, size_t name) const override {
    return HasColumn(row, name) ? WhereValue::Integer(static_cast<int64_t>(row)) : WhereValue::Missing();
  }

 private:
  const bool is_complete_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const reverb::Result<Where> where = Where::Parse(text);
  if (!where.ok()) {
    FUZZ_CHECK(where.status().code() == reverb::StatusCode::kInvalidArgument);
    FUZZ_CHECK(size > Where::kMaxBytes || where.status().message().ends_with("^"));
    FUZZ_CHECK(where.status().message().size() < 600);
    return 0;
  }
  const reverb::Result<Where> again = Where::Parse(where->text());
  FUZZ_CHECK(again.ok());
  for (const bool is_complete : {false, true}) {
    const SyntheticRows rows(is_complete);
    bool all = true;
    for (size_t row = 0; row < rows.size(); ++row) {
      all &= where->Matches(rows, row);
      FUZZ_CHECK(where->Matches(rows, row) == again->Matches(rows, row));
    }
    FUZZ_CHECK(where->MatchesAll(rows) == all);
  }
  return 0;
}
