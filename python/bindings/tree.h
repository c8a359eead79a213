// tree.h — nested structures, flattened by the rules of reverb._tree.
//
// A Structure is a tree of nodes that mirrors the nests it has seen. Walking another nest along it costs a
// look-up for each child and nothing else, as long as the nest has no part that the Structure lacks.
//
// Ownership: nodes hold references on keys and types; leaves and children hold references on their values. A
// nest is never trusted to do that: converting a leaf, comparing keys and asking for a type may all run
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
// A type that is met often and is known to be a leaf.
void SetLeafType(PyTypeObject* type);

using Children = std::vector<std::pair<nb::object, nb::object>>;
// The (key, child) pairs of a nest in flat order. REQUIRES: it is none of kLeaf.
Children ChildrenOf(PyObject* nest, NestKind kind);

// The leaves in flat order.
void Flatten(PyObject* nest, std::vector<nb::object>* leaves);
void FlattenWithPath(PyObject* nest, std::vector<std::pair<nb::object, nb::object>>* leaves);

// The union of the nests that a writer was given: every leaf is a column.
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

  // Appends the leaves of `nest` that are not None, each with its column. False when `nest` has something
  // that is not known, or is of another kind: then Merged() is needed, and `leaves` means nothing.
  bool Walk(PyObject* nest, std::vector<Leaf>* leaves) const;

  // Adds what is new in `nest`: this structure and `nest` together. StructureError when a leaf meets a
  // container. The result walks `nest`.
  Structure Merged(PyObject* nest) const;

  // The same without Python, as it is sent; nothing where it has keys other than str, or goes beyond the
  // limits, which is said in the log.
  ItemStructure ToItemStructure() const;

  // The union with a value for each leaf, given by its column.
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
