#include "nests.h"

namespace reverb::python {

void HistoryNest::Grow(const Structure& structure, const Make& make) {
  for (int32_t column = static_cast<int32_t>(columns_.size()); column < structure.num_columns(); ++column) {
    columns_.push_back(make(static_cast<uint32_t>(column), structure.path(column)));
  }
  nest_ = Build(structure);
  bool is_flat = true;
  for (int32_t column = 0; column < structure.num_columns(); ++column) {
    is_flat = is_flat && PyTuple_GET_SIZE(structure.path(column).ptr()) <= 1;
  }
  if (structure.num_columns() == 0 || !is_flat) {
    copy_ = Copy::kBuild;
  } else if (PyDict_CheckExact(nest_.ptr())) {
    copy_ = Copy::kDict;
  } else {
    copy_ =
        PyTuple_Check(nest_.ptr()) || KindOf(nest_.ptr()) == NestKind::kLeaf ? Copy::kShare : Copy::kBuild;
  }
}

nb::object HistoryNest::Get(const Structure& structure) const {
  if (!nest_.is_valid()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "history cannot be accessed before `append` is called at least once.");
    nb::raise_python_error();
  }
  switch (copy_) {
    case Copy::kShare:
      return nest_;
    case Copy::kDict:
      return Own(PyDict_Copy(nest_.ptr()));
    case Copy::kBuild:
      break;
  }
  return Build(structure);
}

void ItemNest::Flatten(PyObject* nest, std::vector<Structure::Leaf>* leaves, std::vector<nb::object>* kept) {
  for (size_t tries = 0; tries < kStructures; ++tries) {
    const size_t i = (last_ + tries) % kStructures;
    const Structure& known = structures_[i];
    leaves->clear();
    kept->clear();
    // Complete, so that the leaves come in flat order.
    if (!known.empty() && known.Walk(nest, leaves, kept) &&
        static_cast<int32_t>(leaves->size()) == known.num_columns()) {
      last_ = i;
      return;
    }
  }
  leaves->clear();
  kept->clear();
  last_ = (last_ + 1) % kStructures;
  structures_[last_] = Structure().Merged(nest);
  python::Flatten(nest, kept);
  for (const nb::object& leaf : *kept) leaves->emplace_back(0, leaf.ptr());
}

}  // namespace reverb::python
