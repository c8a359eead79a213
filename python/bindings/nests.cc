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

ItemStructure ItemNest::Flatten(PyObject* nest, std::vector<Structure::Leaf>* leaves) {
  for (size_t tries = 0; tries < kKnown; ++tries) {
    const size_t i = (last_ + tries) % kKnown;
    const std::shared_ptr<const Known> known = known_[i];
    leaves->clear();
    // All columns are present, so the leaves are in flat order.
    if (known && known->structure.Walk(nest, leaves) &&
        static_cast<int32_t>(leaves->size()) == known->structure.num_columns()) {
      last_ = i;
      return known->sent;
    }
  }
  leaves->clear();
  auto fresh = std::make_shared<Known>();
  fresh->structure = Structure().Merged(nest);
  fresh->sent = fresh->structure.ToItemStructure();
  std::vector<nb::object> values;
  python::Flatten(nest, &values);
  for (nb::object& value : values) leaves->emplace_back(0, std::move(value));
  last_ = (last_ + 1) % kKnown;
  known_[last_] = fresh;
  return fresh->sent;
}

}  // namespace reverb::python
