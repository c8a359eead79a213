// nests.h — histories and items of writers, which have the nested structure of their steps.
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

// `writer.history`: an object for each column, in the union of the nests of all steps.
class HistoryNest {
 public:
  using Make = std::function<nb::object(uint32_t column, const nb::object& path)>;

  // Adds objects for the new columns of `structure`.
  void Grow(const Structure& structure, const Make& make);
  // Returns the nest; mutable containers are copied. RuntimeError before the first step.
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

// Flattens items. Caches the last few structures, so that most items are walked instead of flattened.
// Threads: with the GIL, which calls may release.
class ItemNest {
 public:
  // Returns the structure to send with the item. `leaves` gets the leaves in flat order; their columns have
  // no meaning.
  ItemStructure Flatten(PyObject* nest, std::vector<Structure::Leaf>* leaves);

  // Calls add(column) for each leaf of `nest`, a column of a writer's history or a nest of them, in flat
  // order. as(leaf) returns the column, or null for other objects: TypeError, naming `type`. ValueError for
  // a column of another writer than `state`; a column without a state has no steps. `leaves` is scratch
  // space that owns the columns. Returns the structure to send with the item.
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
            "a column of `trajectory` belongs to another writer; an item can only contain steps of one "
            "writer");
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
