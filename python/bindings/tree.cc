#include "tree.h"

#include <unordered_map>

#include "arrays.h"
#include "errors.h"
#include "log.h"

namespace reverb::python {

Lazy py_namedtuple_class("reverb._signatures", "namedtuple_class");

namespace {

Lazy py_is_nested("reverb._tree", "is_nested");
Lazy py_is_namedtuple("reverb._tree", "is_namedtuple");
Lazy py_is_attrs("reverb._tree", "is_attrs");
Lazy py_sorted_keys("reverb._tree", "sorted_keys");
Lazy py_mapping("collections.abc", "Mapping");

PyTypeObject* leaf_type = nullptr;

// A deeper nest is assumed to contain itself.
constexpr int kMaxDepth = 500;

bool IsTrue(nb::handle function, PyObject* argument) {
  const nb::object answer = Own(PyObject_CallOneArg(function.ptr(), argument));
  return answer.ptr() == Py_True;
}

// Queries reverb._tree about an instance; the answer depends on its type alone.
NestKind QueryKind(PyObject* object) {
  if (!IsTrue(py_is_nested.get(), object)) return NestKind::kLeaf;
  const int is_mapping = PyObject_IsInstance(object, py_mapping.get().ptr());
  if (is_mapping < 0) nb::raise_python_error();
  if (is_mapping) return NestKind::kMapping;
  if (IsTrue(py_is_namedtuple.get(), object)) return NestKind::kNamedTuple;
  if (IsTrue(py_is_attrs.get(), object)) return NestKind::kAttrs;
  return NestKind::kSequence;
}

nb::object AppendToPath(const nb::object& path, PyObject* key) {
  const Py_ssize_t length = PyTuple_GET_SIZE(path.ptr());
  PyObject* longer = PyTuple_New(length + 1);
  if (longer == nullptr) nb::raise_python_error();
  for (Py_ssize_t i = 0; i < length; ++i)
    PyTuple_SET_ITEM(longer, i, Py_NewRef(PyTuple_GET_ITEM(path.ptr(), i)));
  PyTuple_SET_ITEM(longer, length, Py_NewRef(key));
  return nb::steal(longer);
}

void CheckDepth(const nb::object& path) {
  if (PyTuple_GET_SIZE(path.ptr()) > kMaxDepth) {
    RaiseValueError("the structure is nested more than " + std::to_string(kMaxDepth) +
                    " deep; does it hold itself?");
  }
}

// Returns the names of the fields of a namedtuple or attrs class.
nb::object FieldsOf(PyObject* value, NestKind kind) {
  if (kind == NestKind::kNamedTuple) return nb::object(nb::borrow(value).attr("_fields"));
  nb::list names;
  for (const nb::handle attribute :
       nb::object(nb::borrow(nb::handle(value).type()).attr("__attrs_attrs__"))) {
    names.append(attribute.attr("name"));
  }
  return nb::tuple(names);
}

const char* NameOf(NestKind kind) {
  switch (kind) {
    case NestKind::kLeaf:
      return "a value";
    case NestKind::kMapping:
      return "a dict";
    case NestKind::kSequence:
      return "a list or tuple";
    case NestKind::kNamedTuple:
      return "a namedtuple";
    case NestKind::kAttrs:
      return "an attrs object";
  }
  return "something else";
}

}  // namespace

void SetLeafType(PyTypeObject* type) { leaf_type = type; }

NestKind KindOf(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == leaf_type) return NestKind::kLeaf;
  if (type == &PyDict_Type) return NestKind::kMapping;
  if (type == &PyList_Type || type == &PyTuple_Type) return NestKind::kSequence;
  if (IsPlainLeaf(object)) return NestKind::kLeaf;
  // The kind of a type is queried once. Types are kept alive so that an address always means the same type;
  // the size is bounded for programs that keep creating types.
  static auto* known = new std::unordered_map<PyTypeObject*, NestKind>();
  if (const auto found = known->find(type); found != known->end()) return found->second;
  nb::object held = Borrow(reinterpret_cast<PyObject*>(type));  // the query may change the object's class
  const NestKind kind = QueryKind(object);
  if (known->size() < 4096 && known->emplace(type, kind).second) (void)held.release();
  return kind;
}

Children ChildrenOf(PyObject* nest, NestKind kind) {
  Children children;
  switch (kind) {
    case NestKind::kMapping: {
      nb::object keys;
      if (PyDict_CheckExact(nest)) {
        keys = Own(PyDict_Keys(nest));
        if (PyList_Sort(keys.ptr()) != 0) {
          if (!PyErr_ExceptionMatches(PyExc_TypeError)) nb::raise_python_error();
          PyErr_Clear();
          keys = Own(
              PyObject_CallOneArg(py_sorted_keys.get().ptr(), nest));  // raises an error that names the keys
        }
      } else {
        keys = Own(PyObject_CallOneArg(py_sorted_keys.get().ptr(), nest));
      }
      for (const nb::handle key : keys) {
        children.emplace_back(nb::borrow(key), Own(PyObject_GetItem(nest, key.ptr())));
      }
      break;
    }
    case NestKind::kNamedTuple:
    case NestKind::kAttrs:
      for (const nb::handle name : FieldsOf(nest, kind)) {
        children.emplace_back(nb::borrow(name), Own(PyObject_GetAttr(nest, name.ptr())));
      }
      break;
    case NestKind::kSequence: {
      const nb::object items = Own(PySequence_Fast(nest, "a sequence that cannot be iterated over"));
      const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
      for (Py_ssize_t i = 0; i < count; ++i) {
        children.emplace_back(Own(PyLong_FromSsize_t(i)), Borrow(PySequence_Fast_GET_ITEM(items.ptr(), i)));
      }
      break;
    }
    case NestKind::kLeaf:
      break;
  }
  return children;
}

void Flatten(PyObject* nest, std::vector<nb::object>* leaves) {
  const NestKind kind = KindOf(nest);
  if (kind == NestKind::kLeaf) {
    leaves->push_back(Borrow(nest));
    return;
  }
  if (Py_EnterRecursiveCall(" while a structure was flattened") != 0) nb::raise_python_error();
  try {
    if (kind == NestKind::kSequence && (PyList_CheckExact(nest) || PyTuple_CheckExact(nest))) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(nest); ++i) {
        const nb::object child = Borrow(PySequence_Fast_GET_ITEM(nest, i));  // see Structure::WalkNode()
        Flatten(child.ptr(), leaves);
      }
    } else {
      for (const auto& [key, child] : ChildrenOf(nest, kind)) Flatten(child.ptr(), leaves);
    }
  } catch (...) {
    Py_LeaveRecursiveCall();
    throw;
  }
  Py_LeaveRecursiveCall();
}

namespace {

void CollectWithPath(PyObject* nest, const nb::object& path,
                     std::vector<std::pair<nb::object, nb::object>>* leaves) {
  const NestKind kind = KindOf(nest);
  if (kind == NestKind::kLeaf) {
    leaves->emplace_back(path, Borrow(nest));
    return;
  }
  CheckDepth(path);
  for (const auto& [key, child] : ChildrenOf(nest, kind)) {
    CollectWithPath(child.ptr(), AppendToPath(path, key.ptr()), leaves);
  }
}

}  // namespace

void FlattenWithPath(PyObject* nest, std::vector<std::pair<nb::object, nb::object>>* leaves) {
  CollectWithPath(nest, nb::tuple(), leaves);
}

// --- Walking ---

bool Structure::Walk(PyObject* nest, std::vector<Leaf>* leaves) const {
  return root_ != nullptr && WalkNode(*root_, nest, leaves);
}

// `value` may be borrowed from a container that Python code empties: reference it before such code can run.
bool Structure::WalkNode(const Node& node, PyObject* value, std::vector<Leaf>* leaves) {
  if (value == Py_None) return true;  // no value here, nor for anything below
  if (node.kind == NestKind::kLeaf) {
    leaves->emplace_back(node.column, Borrow(value));
    return KindOf(value) == NestKind::kLeaf;
  }
  const nb::object held = Borrow(value);
  const size_t count = node.children.size();
  if (node.kind == NestKind::kMapping && PyDict_CheckExact(value)) {
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      PyObject* child = PyDict_GetItemWithError(value, node.keys[i].ptr());
      if (child == nullptr) {
        if (PyErr_Occurred()) nb::raise_python_error();
        continue;
      }
      ++found;
      if (!WalkNode(*node.children[i], child, leaves)) return false;
    }
    return static_cast<Py_ssize_t>(found) == PyDict_GET_SIZE(value);
  }
  if (node.kind == NestKind::kSequence && (PyTuple_CheckExact(value) || PyList_CheckExact(value))) {
    // Reads the size again each time: the list may shrink.
    for (size_t i = 0; i < static_cast<size_t>(PySequence_Fast_GET_SIZE(value)); ++i) {
      if (i >= count) return false;
      PyObject* child = PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i));
      if (!WalkNode(*node.children[i], child, leaves)) return false;
    }
    return true;
  }
  // A class may declare fields that its tuples do not have.
  if (node.kind == NestKind::kNamedTuple && reinterpret_cast<PyObject*>(Py_TYPE(value)) == node.type.ptr() &&
      PyTuple_Check(value) && static_cast<size_t>(PyTuple_GET_SIZE(value)) == count) {
    for (size_t i = 0; i < count; ++i) {
      if (!WalkNode(*node.children[i], PyTuple_GET_ITEM(value, static_cast<Py_ssize_t>(i)), leaves))
        return false;
    }
    return true;
  }
  return WalkChildren(node, value, leaves);
}

// Walks containers whose children only Python code can list.
bool Structure::WalkChildren(const Node& node, PyObject* value, std::vector<Leaf>* leaves) {
  const NestKind kind = KindOf(value);
  if (kind != node.kind) return false;
  size_t next = 0;
  for (const auto& [key, child] : ChildrenOf(value, kind)) {
    // Both are in flat order: skip the keys that the nest lacks.
    const Node* found = nullptr;
    for (size_t tries = 0; tries < node.keys.size() && found == nullptr; ++tries) {
      const size_t i = (next + tries) % node.keys.size();
      const int same = PyObject_RichCompareBool(node.keys[i].ptr(), key.ptr(), Py_EQ);
      if (same < 0) nb::raise_python_error();
      if (same) {
        found = node.children[i].get();
        next = i + 1;
      }
    }
    if (found == nullptr) return false;
    if (!WalkNode(*found, child.ptr(), leaves)) return false;
  }
  return true;
}

// --- Growing ---

std::unique_ptr<Structure::Node> Structure::Node::Clone() const {
  auto copy = std::make_unique<Node>();
  copy->kind = kind;
  copy->column = column;
  copy->path = path;
  copy->type = type;
  copy->keys = keys;
  for (const auto& child : children) copy->children.push_back(child->Clone());
  return copy;
}

Structure Structure::Merged(PyObject* nest) const {
  Structure merged;
  merged.paths_ = paths_;
  const nb::object root_path = nb::tuple();
  if (root_ == nullptr) {
    merged.root_ = merged.NewNode(nest, root_path);
  } else {
    merged.root_ = root_->Clone();
    merged.MergeNode(merged.root_.get(), nest, root_path);
  }
  return merged;
}

std::unique_ptr<Structure::Node> Structure::NewNode(PyObject* value, const nb::object& path) {
  CheckDepth(path);
  auto node = std::make_unique<Node>();
  node->kind = KindOf(value);
  if (node->kind == NestKind::kLeaf) {
    node->column = num_columns();
    node->path = path;
    paths_.push_back(path);
    return node;
  }
  node->type = nb::borrow(nb::handle(value).type());
  for (const auto& [key, child] : ChildrenOf(value, node->kind)) {
    node->keys.push_back(key);
    node->children.push_back(NewNode(child.ptr(), AppendToPath(path, key.ptr())));
  }
  return node;
}

void Structure::MergeNode(Node* node, PyObject* value, const nb::object& path) {
  if (value == Py_None) return;
  const NestKind kind = KindOf(value);
  if (kind != node->kind) {
    RaiseStructureError("the structure changed at " + ShortRepr(path) + ": it was " + NameOf(node->kind) +
                        " before and is " + NameOf(kind) +
                        " now. Fields may be added or left out, but not change their kind.");
  }
  if (kind == NestKind::kLeaf) return;
  bool grew = false;
  for (const auto& [key, child] : ChildrenOf(value, kind)) {
    Node* found = nullptr;
    for (size_t i = 0; i < node->keys.size() && found == nullptr; ++i) {
      const int same = PyObject_RichCompareBool(node->keys[i].ptr(), key.ptr(), Py_EQ);
      if (same < 0) nb::raise_python_error();
      if (same) found = node->children[i].get();
    }
    if (found != nullptr) {
      MergeNode(found, child.ptr(), AppendToPath(path, key.ptr()));
    } else {
      grew = true;
      node->keys.push_back(key);
      node->children.push_back(NewNode(child.ptr(), AppendToPath(path, key.ptr())));
    }
  }
  const nb::object type = nb::borrow(nb::handle(value).type());
  if (kind != NestKind::kNamedTuple || type.is(node->type)) return;
  // For another namedtuple, the union uses its class if that has all fields, else a new class.
  const nb::object fields = FieldsOf(value, kind);
  const bool has_all_fields = nb::len(fields) == node->keys.size();
  if (grew || has_all_fields) {
    if (has_all_fields) {
      // In the order of its fields.
      std::vector<nb::object> keys;
      std::vector<std::unique_ptr<Node>> children;
      for (const nb::handle name : fields) {
        for (size_t i = 0; i < node->keys.size(); ++i) {
          if (!node->children[i] || !node->keys[i].equal(name)) continue;
          keys.push_back(node->keys[i]);
          children.push_back(std::move(node->children[i]));
        }
      }
      node->keys = std::move(keys);
      node->children = std::move(children);
      node->type = type;
    } else {
      nb::list names;
      for (const nb::object& key : node->keys) names.append(key);
      node->type = nb::borrow(py_namedtuple_class.get())(node->type.attr("__name__"), nb::tuple(names));
    }
  }
}

// --- Sending ---

Result<Signature> MakeContainer(NestKind kind, nb::handle type, const std::vector<nb::object>& keys,
                                std::vector<Signature> children) {
  if (kind == NestKind::kSequence) {
    const bool is_tuple =
        PyType_FastSubclass(reinterpret_cast<PyTypeObject*>(type.ptr()), Py_TPFLAGS_TUPLE_SUBCLASS);
    return is_tuple ? Signature::Tuple(std::move(children)) : Signature::List(std::move(children));
  }
  std::vector<Signature::Field> fields;
  fields.reserve(children.size());
  for (size_t i = 0; i < children.size(); ++i) {
    Py_ssize_t size = 0;
    const char* key =
        PyUnicode_Check(keys[i].ptr()) ? PyUnicode_AsUTF8AndSize(keys[i].ptr(), &size) : nullptr;
    if (key == nullptr) {
      PyErr_Clear();
      return Status::InvalidArgument("the key " + ShortRepr(keys[i]) + " is not text");
    }
    fields.emplace_back(std::string(key, static_cast<size_t>(size)), std::move(children[i]));
  }
  if (kind == NestKind::kMapping) return Signature::Dict(std::move(fields));
  return Signature::NamedTuple(nb::cast<std::string>(nb::object(type.attr("__name__"))), std::move(fields));
}

namespace {

// INVALID_ARGUMENT for what a Signature cannot express.
Result<Signature> ToSignature(const Structure::Node& node) {
  if (node.kind == NestKind::kLeaf) return Signature();
  std::vector<Signature> children;
  for (const auto& child : node.children) {
    REVERB_ASSIGN_OR_RETURN(Signature signature, ToSignature(*child));
    children.push_back(std::move(signature));
  }
  return MakeContainer(node.kind, node.type, node.keys, std::move(children));
}

}  // namespace

ItemStructure Structure::ToItemStructure() const {
  if (root_ == nullptr) return {};
  Result<ItemStructure> structure = [&]() -> Result<ItemStructure> {
    REVERB_ASSIGN_OR_RETURN(const Signature nest, ToSignature(*root_));
    return ItemStructure::Create(nest);
  }();
  if (structure.ok()) return *std::move(structure);
  static bool has_warned = false;  // with the GIL
  if (!std::exchange(has_warned, true)) {
    Warn(
        "the structure of items cannot be sent, so batches of tables without a signature will be flat "
        "lists: " +
        std::string(structure.status().message()));
  }
  return {};
}

// --- Building ---

nb::object Structure::Assemble(const Node& node, std::vector<nb::object> children) {
  switch (node.kind) {
    case NestKind::kMapping: {
      const nb::object dict = Own(PyDict_New());
      for (size_t i = 0; i < children.size(); ++i) {
        if (PyDict_SetItem(dict.ptr(), node.keys[i].ptr(), children[i].ptr()) != 0) nb::raise_python_error();
      }
      if (node.type.ptr() == reinterpret_cast<PyObject*>(&PyDict_Type)) return dict;
      PyObject* like = PyObject_CallOneArg(node.type.ptr(), dict.ptr());
      if (like != nullptr) return nb::steal(like);
      ClearException();  // the class needs other arguments: use a dict
      return dict;
    }
    case NestKind::kNamedTuple:
    case NestKind::kAttrs: {
      const nb::object keywords = Own(PyDict_New());
      for (size_t i = 0; i < children.size(); ++i) {
        // The argument for the attribute `_name` is `name`.
        const nb::object name =
            node.kind == NestKind::kAttrs ? nb::object(node.keys[i].attr("lstrip")("_")) : node.keys[i];
        if (PyDict_SetItem(keywords.ptr(), name.ptr(), children[i].ptr()) != 0) nb::raise_python_error();
      }
      return Own(PyObject_Call(node.type.ptr(), nb::tuple().ptr(), keywords.ptr()));
    }
    case NestKind::kSequence: {
      const nb::object list = Own(PyList_New(static_cast<Py_ssize_t>(children.size())));
      for (size_t i = 0; i < children.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), children[i].release().ptr());
      }
      if (node.type.ptr() == reinterpret_cast<PyObject*>(&PyTuple_Type))
        return Own(PyList_AsTuple(list.ptr()));
      return list;
    }
    case NestKind::kLeaf:
      break;
  }
  return nb::none();
}

void BindTree(nb::module_& module) {
  module.def(
      "_flatten",
      [](nb::handle nest) {
        std::vector<nb::object> leaves;
        Flatten(nest.ptr(), &leaves);
        nb::list list;
        for (const nb::object& leaf : leaves) list.append(leaf);
        return list;
      },
      "structure"_a.none(), "Returns the leaves in flat order.");
  module.def(
      "_flatten_with_path",
      [](nb::handle nest) {
        std::vector<std::pair<nb::object, nb::object>> leaves;
        FlattenWithPath(nest.ptr(), &leaves);
        nb::list list;
        for (const auto& [path, leaf] : leaves) list.append(nb::make_tuple(path, leaf));
        return list;
      },
      "structure"_a.none(), "Returns (path, leaf) of each leaf in flat order.");
}

}  // namespace reverb::python
