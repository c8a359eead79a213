// nests.h — what writers hand out and take that has the shape of their steps: histories and items.
#ifndef REVERB_PYTHON_NESTS_H_
#define REVERB_PYTHON_NESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "python_api.h"
#include "tree.h"

namespace reverb::python {

// `writer.history`: an object for each column, in the nest that all steps so far have in common.
class HistoryNest {
 public:
  using Make = std::function<nb::object(uint32_t column, const nb::object& path)>;

  // The structure has grown.
  void Grow(const Structure& structure, const Make& make);
  // What can be written to is copied for each caller. RuntimeError before the first step.
  nb::object Get(const Structure& structure) const;

 private:
  enum class Copy { kShare, kDict, kBuild };

  nb::object Build(const Structure& structure) const {
    return structure.Build([this](int32_t column) { return columns_[static_cast<size_t>(column)]; });
  }

  std::vector<nb::object> columns_;
  nb::object nest_;
  Copy copy_ = Copy::kBuild;
};

// The leaves of items. The structures of the last few kinds are kept, so that most are walked instead of
// flattened.
class ItemNest {
 public:
  // In flat order, as leaves whose column means nothing. `kept` holds values that `nest` does not.
  void Flatten(PyObject* nest, std::vector<Structure::Leaf>* leaves, std::vector<nb::object>* kept);

 private:
  static constexpr size_t kStructures = 4;
  Structure structures_[kStructures];
  size_t last_ = 0;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_NESTS_H_
