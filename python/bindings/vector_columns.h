// vector_columns.h — steps of a VectorWriter's environments, as Python chooses them.
//
//   VectorColumnHistory  writer.history['x']: a column, of all environments
//   VectorColumn         history['x'][-3:]: these steps of each, for items
//
// Both name steps by where they are in an episode, whatever the episode: nothing in them expires.
#ifndef REVERB_PYTHON_VECTOR_COLUMNS_H_
#define REVERB_PYTHON_VECTOR_COLUMNS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gil.h"
#include "python_api.h"
#include "reverb/vector_writer.h"

namespace reverb::python {

// The native writer. Columns tell by it whose they are.
struct VectorWriterState {
  Turn turn;
  RoomWait room;
  Owned<VectorWriter> writer;
};

struct VectorColumnHistory {
  std::shared_ptr<VectorWriterState> state;
  uint32_t column = 0;
  nb::object path;
};

struct VectorColumn {
  std::shared_ptr<VectorWriterState> state;
  std::vector<StepRange> steps;
  bool squeeze = false;
  nb::object path;
};

nb::object MakeVectorHistory(std::shared_ptr<VectorWriterState> state, uint32_t column, nb::object path);

// The VectorColumn in `object`; null when it is none.
const VectorColumn* AsVectorColumn(PyObject* object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_VECTOR_COLUMNS_H_
