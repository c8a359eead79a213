// nests.h — what writers hand out and take that has the shape of their steps: histories and items.
#ifndef REVERB_PYTHON_NESTS_H_
#define REVERB_PYTHON_NESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "errors.h"
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
// flattened. Threads: with the GIL, which may be lost in the middle.
class ItemNest {
 public:
  // The leaves in flat order, with a column that means nothing. Returns the structure to be sent with the
  // item.
  ItemStructure Flatten(PyObject* nest, std::vector<Structure::Leaf>* leaves);

  // Calls add(column) for each leaf of `nest`, a column of a writer's history or a nest of them, in flat
  // order. as(leaf) is the column that a leaf is, or null: TypeError, which says that `type` is wanted.
  // ValueError for one of another writer than `state`; a column without a state has no steps. `leaves` is
  // scratch space, and holds the columns. Returns the structure to be sent with the item.
  template <typename As, typename State, typename Add>
  ItemStructure ForEachColumn(PyObject* nest, const char* type, const State& state, As as,
                              std::vector<Structure::Leaf>* leaves, Add add) {
    ItemStructure structure = Flatten(nest, leaves);
    for (const auto& [unused, leaf] : *leaves) {
      const auto* const column = as(leaf.ptr());
      if (column == nullptr) {
        RaiseTypeError("All leaves of `trajectory` must be `" + std::string(type) + "`, got " +
                       ShortRepr(leaf) + " of type " + Py_TYPE(leaf.ptr())->tp_name +
                       "; index the writer's history to get one");
      }
      if (column->state && column->state != state) {
        RaiseValueError(
            "a column of `trajectory` comes from another writer; an item is made of the steps of one");
      }
      add(*column);
    }
    return structure;
  }

 private:
  struct Known {
    Structure structure;
    ItemStructure sent;
  };
  static constexpr size_t kKnown = 4;
  std::shared_ptr<const Known> known_[kKnown];
  size_t last_ = 0;
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_NESTS_H_
