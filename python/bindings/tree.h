// tree.h — nested structures, flattened by the rules of reverb._tree.
//
// A Structure is a tree of nodes that mirrors the nests it has seen. Walking another nest along it costs
// only a look-up for each child, as long as the nest has no part that the Structure lacks.
//
// Ownership: nodes own references to keys and types; leaves and children own references to their values,
// because the nest may not keep them alive: converting a leaf, comparing keys and reading a type may run
// Python code, which may change the nest. Threads: with the GIL.
#ifndef REVERB_PYTHON_TREE_H_
#define REVERB_PYTHON_TREE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python_api.h"
#include "reverb/item_structure.h"

namespace reverb::python {

enum class NestKind : uint8_t {
  kLeaf,
  kMapping,   // dict and others: children by sorted key
  kSequence,  // list, tuple and others: children by index
  kNamedTuple,
  kAttrs,
};

NestKind KindOf(PyObject* object);
// Registers a frequent type of leaves.
void SetLeafType(PyTypeObject* type);

using Children = std::vector<std::pair<nb::object, nb::object>>;
// Returns the (key, child) pairs of a nest in flat order. REQUIRES: the kind is not kLeaf.
Children ChildrenOf(PyObject* nest, NestKind kind);

// Returns the container that a nest of this kind, class and keys is in a signature; `keys` is not used for
// sequences. INVALID_ARGUMENT for keys other than str and beyond the limits of signatures.
Result<Signature> MakeContainer(NestKind kind, nb::handle type, const std::vector<nb::object>& keys,
                                std::vector<Signature> children);

// reverb._signatures.namedtuple_class: (name, fields) -> class.
extern Lazy py_namedtuple_class;

// Append the leaves in flat order.
void Flatten(PyObject* nest, std::vector<nb::object>* leaves);
void FlattenWithPath(PyObject* nest, std::vector<std::pair<nb::object, nb::object>>* leaves);

// The union of the nests of a writer's steps: every leaf is a column.
class Structure {
 public:
  static constexpr int32_t kNoColumn = -1;

  struct Node {
    NestKind kind = NestKind::kLeaf;
    int32_t column = kNoColumn;  // of a leaf
    nb::object path;             // a tuple; of a leaf
    nb::object type;             // the container's class
    std::vector<nb::object> keys;
    std::vector<std::unique_ptr<Node>> children;

    std::unique_ptr<Node> Clone() const;
  };

  using Leaf = std::pair<int32_t, nb::object>;  // column and value

  bool empty() const { return root_ == nullptr; }
  int32_t num_columns() const { return static_cast<int32_t>(paths_.size()); }
  const nb::object& path(int32_t column) const { return paths_[static_cast<size_t>(column)]; }

  // Appends the leaves of `nest` that are not None, each with its column. Returns false if `nest` has a part
  // that the structure lacks, or of another kind: then Merged() is needed, and `leaves` is not valid.
  bool Walk(PyObject* nest, std::vector<Leaf>* leaves) const;

  // Returns the union of this structure and `nest`, which can walk `nest`. StructureError if one has a leaf
  // where the other has a container.
  Structure Merged(PyObject* nest) const;

  // Returns the structure as it is sent. Empty, with one warning in the log, for keys other than str and for
  // structures beyond the limits.
  ItemStructure ToItemStructure() const;

  // Returns the nest with make(column) at each leaf.
  template <typename Make>
  nb::object Build(const Make& make) const {
    return root_ ? BuildNode(*root_, make) : nb::none();
  }

 private:
  static bool WalkNode(const Node& node, PyObject* value, std::vector<Leaf>* leaves);
  static bool WalkChildren(const Node& node, PyObject* value, std::vector<Leaf>* leaves);
  std::unique_ptr<Node> NewNode(PyObject* value, const nb::object& path);
  void MergeNode(Node* node, PyObject* value, const nb::object& path);
  static nb::object Assemble(const Node& node, std::vector<nb::object> children);
  template <typename Make>
  static nb::object BuildNode(const Node& node, const Make& make) {
    if (node.kind == NestKind::kLeaf) return make(node.column);
    std::vector<nb::object> children;
    children.reserve(node.children.size());
    for (const auto& child : node.children) children.push_back(BuildNode(*child, make));
    return Assemble(node, std::move(children));
  }

  std::unique_ptr<Node> root_;
  std::vector<nb::object> paths_;  // by column
};

}  // namespace reverb::python

#endif  // REVERB_PYTHON_TREE_H_
