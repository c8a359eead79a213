// columns.h — the steps of a TrajectoryWriter, in Python.
//
//   ColumnHistory     writer.history['x']: all steps of a column in this episode; grows
//   TrajectoryColumn  history['x'][-3:]: some of the steps, for an item; a snapshot
//   CellRef           one step
//
// All refer to cells by (column, position), which are never reused: cells that are too old are reported as
// expired. Ownership: each keeps the native writer alive, but not open: it is closed with the Python object
// of the writer. Threads: any; calls are serialized.
#ifndef REVERB_PYTHON_COLUMNS_H_
#define REVERB_PYTHON_COLUMNS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gil.h"
#include "python_api.h"
#include "reverb/writer.h"

namespace reverb::python {

// The native writer, shared by the objects that refer to its cells.
struct WriterState {
  Turn turn;
  RoomWait room;
  Owned<TrajectoryWriter> writer;  // set once, before other objects refer to this

  int64_t history_begin() const {
    return writer->position() + (writer->step_is_open() ? 1 : 0) - writer->history_length();
  }
};

struct ColumnHistory {
  std::shared_ptr<WriterState> state;
  uint32_t column = 0;
  nb::object path;
};

struct CellRef {
  std::shared_ptr<WriterState> state;
  uint32_t column = 0;
  int64_t position = 0;
  nb::object path;
};

struct TrajectoryColumn {
  std::shared_ptr<WriterState> state;  // null when there are no cells
  std::vector<CellRange> ranges;
  int64_t length = 0;
  bool squeeze = false;
  nb::object path;  // a tuple, or None
};

nb::object MakeHistory(std::shared_ptr<WriterState> state, uint32_t column, nb::object path);

// Returns the TrajectoryColumn in `object`; null for other objects.
const TrajectoryColumn* AsColumn(PyObject* object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_COLUMNS_H_
