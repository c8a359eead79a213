// signature.h — the nested structure of specs that describes the items of a table.
//
// A Signature is an immutable value: a tree of lists, tuples, dicts and namedtuples with TensorSpecs (or
// None) at the leaves. A leaf may have bounds, which are kept and reported but not enforced. Copies share
// the tree and cost one atomic increment. Threads: a value; may be read from any thread. Invariants, kept by
// the factory functions, so that every Signature can be encoded, decoded and walked recursively: depth <=
// kMaxDepth, nodes <= kMaxNodes, names and keys <= kMaxNameLength bytes, ranks <= kMaxRank, dimensions >= 0
// or unknown, keys unique, bounds of the leaf's dtype that broadcast to its shape.
#ifndef REVERB_SIGNATURE_H_
#define REVERB_SIGNATURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"

namespace reverb {

class Signature {
 public:
  // The numbers are on disk and on the wire: never change them.
  enum class Kind : uint8_t { kNone = 0, kLeaf = 1, kList = 2, kTuple = 3, kDict = 4, kNamedTuple = 5 };

  static constexpr size_t kMaxDepth = 64;  // a lone leaf has depth 1
  static constexpr size_t kMaxNodes = size_t{1} << 20;
  static constexpr size_t kMaxNameLength = 1024;
  static constexpr size_t kMaxRank = 64;

  using Field = std::pair<std::string, Signature>;

  // The lowest and the highest value of each element, both included. Their shapes broadcast to the shape of
  // the leaf by NumPy's rules: a scalar applies to all elements.
  struct Bounds {
    Tensor minimum;
    Tensor maximum;
  };

  Signature() = default;  // None
  // Each returns INVALID_ARGUMENT, naming the limit, when an invariant would be violated.
  static Result<Signature> Leaf(TensorSpec spec);
  static Result<Signature> Leaf(TensorSpec spec, Bounds bounds);
  static Result<Signature> List(std::vector<Signature> children);
  static Result<Signature> Tuple(std::vector<Signature> children);
  // Sorts the fields by key.
  static Result<Signature> Dict(std::vector<Field> fields);
  // Keeps the declared order of the fields.
  static Result<Signature> NamedTuple(std::string type_name, std::vector<Field> fields);

  Kind kind() const;
  // REQUIRES: kind() == kLeaf.
  const TensorSpec& spec() const;
  // Null for a leaf without bounds and for other kinds.
  const Bounds* bounds() const;
  // The name of a namedtuple's type; empty for other kinds.
  std::string_view type_name() const;
  // Empty for leaves and None.
  std::span<const Signature> children() const;
  // The keys of a dict (sorted) or the fields of a namedtuple, one for each child; else empty.
  std::span<const std::string> keys() const;

  size_t depth() const;
  size_t num_nodes() const;
  size_t num_leaves() const;

  // Returns the specs in flat order: lists and tuples by index, dicts by sorted key, namedtuples by declared
  // order. Each name is the path joined by '/', then the spec's own name, without empty parts:
  // "obs/0/pixels". INVALID_ARGUMENT when the structure contains a None; RESOURCE_EXHAUSTED when the names
  // together take more than 64 MiB.
  Result<std::vector<TensorSpec>> Flatten() const;

  // "{action: int32[], obs: float32[84, 84]}". Leaves out bounds.
  std::string ToString() const;

  friend bool operator==(const Signature& a, const Signature& b);

 private:
  struct Rep;
  static Result<Signature> MakeLeaf(TensorSpec spec, std::unique_ptr<const Bounds> bounds);
  static Result<Signature> Make(Kind kind, std::string type_name, std::vector<std::string> keys,
                                std::vector<Signature> children);

  std::shared_ptr<const Rep> rep_;  // null for None
};

// Returns a compact encoding that starts with a version byte. Equal signatures have equal encodings.
std::string EncodeSignature(const Signature& signature);

// DATA_LOSS, naming the position, when `bytes` is not exactly one encoded signature within the limits above.
// Safe for untrusted bytes: memory stays proportional to their size.
Result<Signature> DecodeSignature(std::string_view bytes);

}  // namespace reverb

#endif  // REVERB_SIGNATURE_H_
