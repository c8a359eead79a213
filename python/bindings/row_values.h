// row_values.h — arguments and results of operations on row tables, whether a thread waits for them or not.
//
// Threads: with the GIL.
#ifndef REVERB_PYTHON_ROW_VALUES_H_
#define REVERB_PYTHON_ROW_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "gil.h"
#include "python_api.h"
#include "reverb/row_table_options.h"
#include "reverb/rows.h"

namespace reverb::python {

nb::dict FromTags(const std::vector<RowTag>& tags);
nb::list FromStrings(const std::vector<std::string>& strings);
// Returns the fields of reverb.RowInfo for each row.
nb::list FromInfos(const std::vector<RowInfo>& rows);
// The caller's state of a table: None or bytes.
std::optional<std::string> ToState(const std::optional<nb::bytes>& state);

// Converts the arguments that reverb.rows has collected.
RowClaim ToClaim(const nb::dict& arguments);

// The same of a write. The rows refer to the caller's arrays.
struct RowsToPut {
  explicit RowsToPut(const nb::dict& arguments);

  RowWriteMode mode;
  Views views;
  std::vector<NewRow> rows;
};

// Rows with data.
class RowBatchObject {
 public:
  explicit RowBatchObject(RowBatch batch) : batch_(Owned<RowBatch>(std::move(batch))) {}

  nb::list keys() const {
    return Each([](const RowInfo& row) { return Text(row.key); });
  }
  nb::list groups() const {
    return Each([](const RowInfo& row) { return Text(row.group); });
  }
  nb::list versions() const {
    return Each([](const RowInfo& row) { return nb::object(nb::int_(row.version)); });
  }
  nb::list tags() const {
    return Each([](const RowInfo& row) { return nb::object(FromTags(row.tags)); });
  }
  nb::list columns() const { return FromStrings(batch_->columns()); }
  int64_t version() const { return batch_->version(); }
  uint64_t lease_id() const { return batch_->lease_id(); }
  std::optional<int64_t> step() const { return batch_->step(); }
  size_t size() const { return batch_->rows().size(); }

  // Returns (values, offsets, is_scalar).
  nb::tuple Column(const std::string& name) const;
  nb::tuple Settle(int settlement, const std::vector<std::string>& keys, nb::handle lease,
                   std::optional<nb::bytes> state, std::optional<double> timeout) const;
  const RowBatch& batch() const { return *batch_; }

 private:
  template <typename F>
  nb::list Each(F convert) const {
    nb::list result;
    for (const RowInfo& row : batch_->rows()) result.append(convert(row));
    return result;
  }

  const Origin origin_;
  Owned<RowBatch> batch_;
};

void BindRowBatch(nb::module_& module);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ROW_VALUES_H_
