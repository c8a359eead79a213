// step_columns.h — the columns of a writer whose steps are nests: their structure, names, chunking and histories.
//
// Keeps the structure of all steps so far (tree.h). Steps that match it are converted to columns with look-ups
// only. `Writer` is TrajectoryWriter or VectorWriter. Threads: with the writer's turn and the GIL.
#ifndef REVERB_PYTHON_STEP_COLUMNS_H_
#define REVERB_PYTHON_STEP_COLUMNS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chunking.h"
#include "errors.h"
#include "nests.h"
#include "python_api.h"
#include "tree.h"

namespace reverb::python {

template <typename Writer>
class StepColumns {
 public:
  // `chunking` applies to columns that Configure() is not called for.
  explicit StepColumns(const ChunkingOptions& chunking) : chunking_(chunking) {}

  // Sets *leaves to those of a step and calls append(). New parts of the step are kept only if it succeeds; then
  // make_history(column, path) returns the history of each new column.
  template <typename Append, typename MakeHistory>
  void Add(Writer& writer, nb::handle step, std::vector<Structure::Leaf>* leaves, Append&& append,
           MakeHistory&& make_history) {
    if (structure_.Walk(step.ptr(), leaves)) [[likely]] {
      append();
      return;
    }
    Structure grown = structure_.Merged(step.ptr());
    leaves->clear();
    if (!grown.Walk(step.ptr(), leaves)) RaiseStructureError("the structure changed while it was read");
    NameNewColumns(writer, grown);
    append();
    structure_ = std::move(grown);
    history_.Grow(structure_, make_history);
  }

  // For a path that has not appeared yet, applies once it does.
  void Configure(Writer& writer, nb::handle path, const ChunkingOptions& options) {
    for (int32_t column = 0; column < structure_.num_columns(); ++column) {
      if (!structure_.path(column).equal(path)) continue;
      RaiseUnlessOk(writer.Configure(static_cast<uint32_t>(column), options));
      return;
    }
    SetChunking(&configured_, path, options);
  }

  nb::object history() { return history_.Get(structure_); }

 private:
  void NameNewColumns(Writer& writer, const Structure& structure) {
    for (int32_t column = structure_.num_columns(); column < structure.num_columns(); ++column) {
      const nb::object& path = structure.path(column);
      const nb::object text = Own(PyObject_Repr(path.ptr()));
      RaiseUnlessOk(writer.NameColumn(static_cast<uint32_t>(column), nb::cast<std::string>(text)));
      const ChunkingOptions* const configured = FindChunking(configured_, path);
      // A failed step may have declared another column with this number.
      if (configured != nullptr || column < prepared_) {
        RaiseUnlessOk(writer.Configure(static_cast<uint32_t>(column), configured ? *configured : chunking_));
      }
    }
    prepared_ = std::max(prepared_, structure.num_columns());
  }

  const ChunkingOptions chunking_;
  Structure structure_;
  HistoryNest history_;
  ColumnChunking configured_;  // paths that have not appeared yet
  int32_t prepared_ = 0;       // named columns, including those of failed steps
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_STEP_COLUMNS_H_
