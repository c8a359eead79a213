// rows.h — the options of row tables, for servers.
//
// Threads: with the GIL.
#ifndef REVERB_PYTHON_ROWS_H_
#define REVERB_PYTHON_ROWS_H_

#include "python_api.h"
#include "reverb/row_table_options.h"

namespace reverb::python {

// Converts the options that reverb.RowTable has checked. ValueError for those that do not Validate().
RowTableOptions ToRowTableOptions(nb::handle options);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ROWS_H_
