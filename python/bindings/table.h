// table.h — reverb.Table: options, and a table to inspect before and after a server serves it.
//
// A server creates its own tables. Until then, a Table object owns an empty table that answers queries;
// afterwards it shows the server's table, even after the server has stopped.
#ifndef REVERB_PYTHON_TABLE_H_
#define REVERB_PYTHON_TABLE_H_

#include <optional>
#include <string>

#include "gil.h"
#include "python_api.h"
#include "reverb/table.h"
#include "reverb/table_options.h"

namespace reverb::python {

struct SelectorObject {
  SelectorOptions options;
};
std::string ToRepr(const SelectorOptions& options);
std::string ToRepr(const RateLimiterOptions& options);
std::string KindName(const SelectorOptions& options);

class TableObject {
 public:
  // ValueError for options that do not Validate().
  explicit TableObject(TableOptions options);

  const TableOptions& options() const { return options_; }
  // RuntimeError for the table of a server in the parent of this process.
  Table table() const {
    if (is_served_) origin_.Check();
    return *table_;
  }
  bool is_served() const { return is_served_; }
  // Shows `table` from now on.
  void Serve(Table table);
  std::string ToRepr() const;

 private:
  TableOptions options_;
  Owned<Table> table_;
  bool is_served_ = false;
  Origin origin_;  // of the server, once it is served
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_TABLE_H_
