// columns.h — what a TrajectoryWriter has been given, as Python sees it.
//
//   ColumnHistory     writer.history['x']: all steps of a column since the episode began; grows with it
//   TrajectoryColumn  history['x'][-3:]: some of them, for an item; a snapshot
//   CellRef           one of these
//
// All name cells by (column, position), which never come again: what is too old is expired, not wrong.
// Ownership: each keeps the native writer alive, but not open: that ends with the Python object of the
// writer. Threads: any; calls take turns.
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
  Owned<TrajectoryWriter> writer;  // set once, before anything else refers to this

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

// The TrajectoryColumn in `object`; null when it is none.
const TrajectoryColumn* AsColumn(PyObject* object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_COLUMNS_H_
