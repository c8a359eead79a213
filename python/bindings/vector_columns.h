// vector_columns.h — references to steps of a VectorWriter's environments.
//
//   VectorColumnHistory  writer.history['x']: a column, of all environments
//   VectorColumn         history['x'][-3:]: these steps of each, for items
//
// Both refer to steps by their position in the current episode, so they never expire.
#ifndef REVERB_PYTHON_VECTOR_COLUMNS_H_
#define REVERB_PYTHON_VECTOR_COLUMNS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gil.h"
#include "python_api.h"
#include "reverb/vector_writer.h"

namespace reverb::python {

// The native writer. Identifies the owner of columns.
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

// Returns the VectorColumn in `object`; null for other objects.
const VectorColumn* AsVectorColumn(PyObject* object);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_VECTOR_COLUMNS_H_
