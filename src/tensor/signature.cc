#include "reverb/signature.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <unordered_set>

#include "tensor/byte_io.h"

namespace reverb {

struct Signature::Rep {
  Kind kind;
  size_t depth = 1;
  size_t num_nodes = 1;
  size_t num_leaves = 0;
  TensorSpec spec;                       // leaf
  std::unique_ptr<const Bounds> bounds;  // leaf; null: none
  std::string type_name;                 // namedtuple
  std::vector<std::string> keys;         // dict, namedtuple
  std::vector<Signature> children;       // all but leaves
};

namespace {

using internal::ByteReader;
using Kind = Signature::Kind;

constexpr uint8_t kVersion = 1;
constexpr uint8_t kBoundedLeaf = 6;  // the kind of a leaf with bounds, in the encoding only
constexpr size_t kMaxFlatNameBytes = size_t{64} << 20;

// Returns the name in quotes, shortened for messages.
std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 64;
  if (name.size() <= kShown) return "\"" + std::string(name) + "\"";
  return "\"" + std::string(name.substr(0, kShown)) + "...\"";
}

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kLeaf:
      return "leaf";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamedTuple:
      return "namedtuple";
  }
  return "unknown";
}

Status CheckName(std::string_view what, std::string_view name) {
  if (name.size() <= Signature::kMaxNameLength) return Status::Ok();
  return Status::InvalidArgument(
      "signature: " + std::string(what) + " " + Quoted(name) + " has " + std::to_string(name.size()) +
      " bytes, at most " + std::to_string(Signature::kMaxNameLength) + " are allowed; use a shorter one");
}

std::pair<std::vector<std::string>, std::vector<Signature>> Split(std::vector<Signature::Field>&& fields) {
  std::vector<std::string> keys;
  std::vector<Signature> children;
  keys.reserve(fields.size());
  children.reserve(fields.size());
  for (auto& [key, child] : fields) {
    keys.push_back(std::move(key));
    children.push_back(std::move(child));
  }
  return {std::move(keys), std::move(children)};
}

// From the last dimension on, each is 1, equal, or unknown in `shape`; `dims` may have fewer.
bool BroadcastsTo(const std::vector<int64_t>& dims, const Shape& shape) {
  if (!shape.has_rank()) return true;
  if (dims.size() > shape.rank()) return false;
  for (size_t i = 1; i <= dims.size(); ++i) {
    const int64_t dim = dims[dims.size() - i];
    const int64_t wanted = shape.dim(shape.rank() - i);
    if (dim != 1 && wanted != Shape::kUnknownDim && dim != wanted) return false;
  }
  return true;
}

Status CheckBound(std::string_view what, const TensorSpec& spec, const Tensor& bound) {
  if (bound.dtype() == spec.dtype && bound.dims().size() <= Signature::kMaxRank &&
      BroadcastsTo(bound.dims(), spec.shape)) {
    return Status::Ok();
  }
  return Status::InvalidArgument("signature: the " + std::string(what) + " of spec " + Quoted(spec.name) +
                                 " is " + std::string(DTypeName(bound.dtype())) +
                                 Shape(bound.dims()).ToString() + ", which does not broadcast to " +
                                 std::string(DTypeName(spec.dtype)) + spec.shape.ToString());
}

// Bitwise: NaN equals itself.
bool AreEqual(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() && a.strings() == b.strings() &&
         (a.num_bytes() == 0 || std::memcmp(a.data(), b.data(), a.num_bytes()) == 0);
}

bool AreEqual(const Signature::Bounds* a, const Signature::Bounds* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return AreEqual(a->minimum, b->minimum) && AreEqual(a->maximum, b->maximum);
}

}  // namespace

Result<Signature> Signature::Leaf(TensorSpec spec) { return MakeLeaf(std::move(spec), nullptr); }

Result<Signature> Signature::Leaf(TensorSpec spec, Bounds bounds) {
  REVERB_RETURN_IF_ERROR(CheckBound("minimum", spec, bounds.minimum));
  REVERB_RETURN_IF_ERROR(CheckBound("maximum", spec, bounds.maximum));
  return MakeLeaf(std::move(spec), std::make_unique<const Bounds>(std::move(bounds)));
}

Result<Signature> Signature::MakeLeaf(TensorSpec spec, std::unique_ptr<const Bounds> bounds) {
  REVERB_RETURN_IF_ERROR(CheckName("spec name", spec.name));
  if (!IsKnownDType(static_cast<uint8_t>(spec.dtype))) {
    return Status::InvalidArgument("signature: spec " + Quoted(spec.name) + " has dtype number " +
                                   std::to_string(static_cast<int>(spec.dtype)) +
                                   ", which is not known; use one of those in reverb/tensor.h");
  }
  if (spec.shape.rank() > kMaxRank) {
    return Status::InvalidArgument("signature: spec " + Quoted(spec.name) + " has " +
                                   std::to_string(spec.shape.rank()) + " dimensions, at most " +
                                   std::to_string(kMaxRank) + " are allowed");
  }
  for (int64_t dim : spec.shape.dims()) {
    if (dim < 0 && dim != Shape::kUnknownDim) {
      return Status::InvalidArgument("signature: spec " + Quoted(spec.name) + " has shape " +
                                     spec.shape.ToString() +
                                     "; dimensions are 0 or more, or -1 when unknown");
    }
  }
  auto rep = std::make_shared<Rep>();
  rep->kind = Kind::kLeaf;
  rep->num_leaves = 1;
  rep->spec = std::move(spec);
  rep->bounds = std::move(bounds);
  Signature signature;
  signature.rep_ = std::move(rep);
  return signature;
}

Result<Signature> Signature::List(std::vector<Signature> children) {
  return Make(Kind::kList, {}, {}, std::move(children));
}

Result<Signature> Signature::Tuple(std::vector<Signature> children) {
  return Make(Kind::kTuple, {}, {}, std::move(children));
}

Result<Signature> Signature::Dict(std::vector<Field> fields) {
  std::stable_sort(fields.begin(), fields.end(),
                   [](const Field& a, const Field& b) { return a.first < b.first; });
  auto [keys, children] = Split(std::move(fields));
  return Make(Kind::kDict, {}, std::move(keys), std::move(children));
}

Result<Signature> Signature::NamedTuple(std::string type_name, std::vector<Field> fields) {
  auto [keys, children] = Split(std::move(fields));
  return Make(Kind::kNamedTuple, std::move(type_name), std::move(keys), std::move(children));
}

Result<Signature> Signature::Make(Kind kind, std::string type_name, std::vector<std::string> keys,
                                  std::vector<Signature> children) {
  REVERB_RETURN_IF_ERROR(CheckName("type name", type_name));
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    REVERB_RETURN_IF_ERROR(CheckName("key", keys[i]));
    const bool repeated =
        kind == Kind::kDict ? i > 0 && keys[i] == keys[i - 1] : !seen.insert(keys[i]).second;
    if (repeated) {
      return Status::InvalidArgument("signature: a " + std::string(KindName(kind)) + " has the key " +
                                     Quoted(keys[i]) + " twice; keys must differ");
    }
  }
  auto rep = std::make_shared<Rep>();
  rep->kind = kind;
  for (const Signature& child : children) {
    rep->depth = std::max(rep->depth, child.depth() + 1);
    rep->num_nodes += child.num_nodes();
    rep->num_leaves += child.num_leaves();
    if (rep->depth > kMaxDepth || rep->num_nodes > kMaxNodes) {
      return Status::InvalidArgument("signature: more than " + std::to_string(kMaxDepth) + " levels or " +
                                     std::to_string(kMaxNodes) + " nodes; flatten the structure");
    }
  }
  rep->type_name = std::move(type_name);
  rep->keys = std::move(keys);
  rep->children = std::move(children);
  Signature signature;
  signature.rep_ = std::move(rep);
  return signature;
}

Kind Signature::kind() const { return rep_ ? rep_->kind : Kind::kNone; }

const TensorSpec& Signature::spec() const {
  assert(kind() == Kind::kLeaf);
  return rep_->spec;
}

const Signature::Bounds* Signature::bounds() const { return rep_ ? rep_->bounds.get() : nullptr; }

std::string_view Signature::type_name() const {
  return rep_ ? std::string_view(rep_->type_name) : std::string_view();
}

std::span<const Signature> Signature::children() const {
  if (!rep_) return {};
  return rep_->children;
}

std::span<const std::string> Signature::keys() const {
  if (!rep_) return {};
  return rep_->keys;
}

size_t Signature::depth() const { return rep_ ? rep_->depth : 1; }
size_t Signature::num_nodes() const { return rep_ ? rep_->num_nodes : 1; }
size_t Signature::num_leaves() const { return rep_ ? rep_->num_leaves : 0; }

bool operator==(const Signature& a, const Signature& b) {
  if (a.rep_ == b.rep_) return true;
  if (!a.rep_ || !b.rep_) return false;
  const Signature::Rep& x = *a.rep_;
  const Signature::Rep& y = *b.rep_;
  return x.kind == y.kind && x.num_nodes == y.num_nodes && x.spec == y.spec &&
         AreEqual(x.bounds.get(), y.bounds.get()) && x.type_name == y.type_name && x.keys == y.keys &&
         x.children == y.children;
}

namespace {

// All of the following recurse at most kMaxDepth deep.

// Appends a part to a path; returns the previous length.
size_t Enter(std::string* path, std::string_view part) {
  const size_t length = path->size();
  if (!part.empty()) {
    if (!path->empty()) *path += '/';
    *path += part;
  }
  return length;
}

Status FlattenInto(const Signature& node, std::string* path, size_t* name_bytes,
                   std::vector<TensorSpec>* out) {
  if (node.kind() == Kind::kNone) {
    return Status::InvalidArgument("signature: " + (path->empty() ? "the root" : Quoted(*path)) +
                                   " is None, where a TensorSpec is needed; give it a spec or leave it out");
  }
  if (node.kind() == Kind::kLeaf) {
    const size_t length = Enter(path, node.spec().name);
    *name_bytes += path->size();
    if (*name_bytes > kMaxFlatNameBytes) {
      return Status::ResourceExhausted("signature: the names of the leaves take more than " +
                                       std::to_string(kMaxFlatNameBytes) + " bytes; use shorter keys");
    }
    out->push_back({*path, node.spec().dtype, node.spec().shape});
    path->resize(length);
    return Status::Ok();
  }
  for (size_t i = 0; i < node.children().size(); ++i) {
    const size_t length = Enter(path, node.keys().empty() ? std::to_string(i) : node.keys()[i]);
    REVERB_RETURN_IF_ERROR(FlattenInto(node.children()[i], path, name_bytes, out));
    path->resize(length);
  }
  return Status::Ok();
}

void Print(const Signature& node, std::string* out) {
  std::string_view open, between, close;
  switch (node.kind()) {
    case Kind::kNone:
      *out += "None";
      return;
    case Kind::kLeaf:
      *out += ToString(node.spec());
      return;
    case Kind::kList:
      open = "[", close = "]";
      break;
    case Kind::kTuple:
      open = "(", close = node.children().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict:
      open = "{", between = ": ", close = "}";
      break;
    case Kind::kNamedTuple:
      open = "(", between = "=", close = ")";
      break;
  }
  *out += node.type_name();
  *out += open;
  for (size_t i = 0; i < node.children().size(); ++i) {
    if (i > 0) *out += ", ";
    if (!node.keys().empty()) {
      *out += node.keys()[i];
      *out += between;
    }
    Print(node.children()[i], out);
  }
  *out += close;
}

// signature := version:u8 node
// node := kind:u8 body
//   none       body :=
//   leaf       body := dtype:u8 name:string (0 | rank+1 (dim+1)*rank)        unknown rank is 0
//   bounded    body := leaf's body, minimum:bound maximum:bound
//   list/tuple body := count node*count
//   dict       body := count (key:string node)*count                        keys strictly ascending
//   namedtuple body := type:string count (key:string node)*count            keys differ
// bound := rank dim*rank element*             fixed-size elements little-endian, others as strings
// string := length bytes; all counts and lengths are varints of the shortest form.
void EncodeBound(const Tensor& bound, std::string* out) {
  internal::PutVarint(out, bound.dims().size());
  for (int64_t dim : bound.dims()) internal::PutVarint(out, static_cast<uint64_t>(dim));
  for (const std::string& element : bound.strings()) internal::PutString(out, element);
  out->append(reinterpret_cast<const char*>(bound.data()), bound.num_bytes());
}

void EncodeNode(const Signature& node, std::string* out) {
  using internal::PutByte, internal::PutString, internal::PutVarint;
  const Signature::Bounds* const bounds = node.bounds();
  PutByte(out, bounds != nullptr ? kBoundedLeaf : static_cast<uint8_t>(node.kind()));
  if (node.kind() == Kind::kNone) return;
  if (node.kind() == Kind::kLeaf) {
    const TensorSpec& spec = node.spec();
    PutByte(out, static_cast<uint8_t>(spec.dtype));
    PutString(out, spec.name);
    PutVarint(out, spec.shape.has_rank() ? spec.shape.rank() + 1 : 0);
    for (int64_t dim : spec.shape.dims()) PutVarint(out, static_cast<uint64_t>(dim) + 1);
    if (bounds != nullptr) {
      EncodeBound(bounds->minimum, out);
      EncodeBound(bounds->maximum, out);
    }
    return;
  }
  if (node.kind() == Kind::kNamedTuple) PutString(out, node.type_name());
  PutVarint(out, node.children().size());
  for (size_t i = 0; i < node.children().size(); ++i) {
    if (!node.keys().empty()) PutString(out, node.keys()[i]);
    EncodeNode(node.children()[i], out);
  }
}

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : reader_(bytes) {}

  Result<Signature> Decode() {
    uint8_t version = 0;
    if (!reader_.ReadByte(&version)) return Damaged("it is empty");
    if (version != kVersion) {
      return Damaged("its version is " + std::to_string(version) + ", this build reads version " +
                     std::to_string(kVersion) + "; use a build at least as new as the writer's");
    }
    REVERB_ASSIGN_OR_RETURN(Signature root, Node(1));
    if (reader_.remaining() != 0)
      return Damaged(std::to_string(reader_.remaining()) + " bytes follow its end");
    return root;
  }

 private:
  Status Damaged(std::string why) const {
    return Status::DataLoss("encoded signature, near byte " + std::to_string(reader_.position()) + ": " +
                            std::move(why))
        .WithDetail(Detail::kCorruptData);
  }
  Status CutShort() const { return Damaged("it is cut short or a number in it is malformed"); }

  Result<std::string> Name() {
    std::string_view name;
    if (!reader_.ReadString(&name)) return CutShort();
    if (name.size() > Signature::kMaxNameLength) {
      return Damaged("a name has " + std::to_string(name.size()) + " bytes, at most " +
                     std::to_string(Signature::kMaxNameLength) + " are allowed");
    }
    return std::string(name);
  }

  Result<Signature> Node(size_t depth) {
    if (depth > Signature::kMaxDepth) {
      return Damaged("it is nested more than " + std::to_string(Signature::kMaxDepth) + " levels deep");
    }
    if (++nodes_ > Signature::kMaxNodes) {
      return Damaged("it has more than " + std::to_string(Signature::kMaxNodes) + " nodes");
    }
    uint8_t kind = 0;
    if (!reader_.ReadByte(&kind)) return CutShort();
    if (kind == kBoundedLeaf) return BoundedLeafNode();
    switch (static_cast<Kind>(kind)) {
      case Kind::kNone:
        return Signature();
      case Kind::kLeaf:
        return LeafNode();
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kDict:
      case Kind::kNamedTuple:
        return Container(static_cast<Kind>(kind), depth);
    }
    return Damaged("a node has kind " + std::to_string(kind) + ", which is not known");
  }

  Result<Signature> LeafNode() {
    REVERB_ASSIGN_OR_RETURN(TensorSpec spec, Spec());
    return Signature::Leaf(std::move(spec));
  }

  Result<Signature> BoundedLeafNode() {
    REVERB_ASSIGN_OR_RETURN(TensorSpec spec, Spec());
    Signature::Bounds bounds;
    REVERB_ASSIGN_OR_RETURN(bounds.minimum, Bound(spec.dtype));
    REVERB_ASSIGN_OR_RETURN(bounds.maximum, Bound(spec.dtype));
    Result<Signature> made = Signature::Leaf(std::move(spec), std::move(bounds));
    if (!made.ok()) return Damaged(std::string(made.status().message()));
    return made;
  }

  Result<Tensor> Bound(DType dtype) {
    uint64_t rank = 0;
    if (!reader_.ReadVarint(&rank)) return CutShort();
    if (rank > Signature::kMaxRank) {
      return Damaged("a bound has " + std::to_string(rank) + " dimensions, at most " +
                     std::to_string(Signature::kMaxRank) + " are allowed");
    }
    std::vector<int64_t> dims(rank);
    for (int64_t& dim : dims) {
      uint64_t value = 0;
      if (!reader_.ReadVarint(&value)) return CutShort();
      if (value > INT64_MAX) return Damaged("a dimension does not fit 63 bits");
      dim = static_cast<int64_t>(value);
    }
    // An element takes at least a byte: memory stays proportional to the input.
    const Result<int64_t> count = Shape(dims).NumElements();
    const size_t size = std::max<size_t>(1, ItemSize(dtype));
    if (!count.ok() || static_cast<uint64_t>(*count) > reader_.remaining() / size) {
      return Damaged("a bound of shape " + Shape(dims).ToString() + ", but " +
                     std::to_string(reader_.remaining()) + " bytes are left");
    }
    REVERB_ASSIGN_OR_RETURN(Tensor bound, Tensor::Allocate(dtype, std::move(dims)));
    for (std::string& element : bound.strings()) {
      std::string_view bytes;
      if (!reader_.ReadString(&bytes)) return CutShort();
      element = bytes;
    }
    std::string_view bytes;
    if (!reader_.ReadBytes(bound.num_bytes(), &bytes)) return CutShort();
    if (!bytes.empty()) std::memcpy(bound.data(), bytes.data(), bytes.size());
    return bound;
  }

  Result<TensorSpec> Spec() {
    uint8_t dtype = 0;
    if (!reader_.ReadByte(&dtype)) return CutShort();
    if (!IsKnownDType(dtype))
      return Damaged("a spec has dtype number " + std::to_string(dtype) + ", which is not known");
    TensorSpec spec;
    spec.dtype = static_cast<DType>(dtype);
    REVERB_ASSIGN_OR_RETURN(spec.name, Name());
    uint64_t rank_plus_1 = 0;
    if (!reader_.ReadVarint(&rank_plus_1)) return CutShort();
    if (rank_plus_1 > Signature::kMaxRank + 1) {
      return Damaged("a spec has " + std::to_string(rank_plus_1 - 1) + " dimensions, at most " +
                     std::to_string(Signature::kMaxRank) + " are allowed");
    }
    if (rank_plus_1 == 0) {
      spec.shape = Shape::UnknownRank();
    } else {
      std::vector<int64_t> dims(rank_plus_1 - 1);
      for (int64_t& dim : dims) {
        uint64_t dim_plus_1 = 0;
        if (!reader_.ReadVarint(&dim_plus_1)) return CutShort();
        if (dim_plus_1 > uint64_t{1} << 63) return Damaged("a dimension does not fit 63 bits");
        dim = static_cast<int64_t>(dim_plus_1 - 1);
      }
      spec.shape = Shape(std::move(dims));
    }
    return spec;
  }

  Result<Signature> Container(Kind kind, size_t depth) {
    const bool keyed = kind == Kind::kDict || kind == Kind::kNamedTuple;
    std::string type_name;
    if (kind == Kind::kNamedTuple) {
      REVERB_ASSIGN_OR_RETURN(type_name, Name());
    }
    uint64_t count = 0;
    if (!reader_.ReadVarint(&count)) return CutShort();
    // A child takes at least a byte, a key one more: memory stays proportional to the input.
    if (count > reader_.remaining() / (keyed ? 2 : 1)) {
      return Damaged("a " + std::string(KindName(kind)) + " claims " + std::to_string(count) +
                     " children, but " + std::to_string(reader_.remaining()) + " bytes are left");
    }
    std::vector<Signature> children;
    std::vector<Signature::Field> fields;
    for (uint64_t i = 0; i < count; ++i) {
      std::string key;
      if (keyed) {
        REVERB_ASSIGN_OR_RETURN(key, Name());
        if (kind == Kind::kDict && i > 0 && key <= fields.back().first) {
          return Damaged("the keys of a dict are not in ascending order at " + Quoted(key));
        }
      }
      REVERB_ASSIGN_OR_RETURN(Signature child, Node(depth + 1));
      if (keyed) {
        fields.emplace_back(std::move(key), std::move(child));
      } else {
        children.push_back(std::move(child));
      }
    }
    Result<Signature> made = kind == Kind::kList    ? Signature::List(std::move(children))
                             : kind == Kind::kTuple ? Signature::Tuple(std::move(children))
                             : kind == Kind::kDict
                                 ? Signature::Dict(std::move(fields))
                                 : Signature::NamedTuple(std::move(type_name), std::move(fields));
    if (!made.ok()) return Damaged(std::string(made.status().message()));
    return made;
  }

  ByteReader reader_;
  size_t nodes_ = 0;
};

}  // namespace

Result<std::vector<TensorSpec>> Signature::Flatten() const {
  std::vector<TensorSpec> out;
  out.reserve(num_leaves());
  std::string path;
  size_t name_bytes = 0;
  REVERB_RETURN_IF_ERROR(FlattenInto(*this, &path, &name_bytes, &out));
  return out;
}

std::string Signature::ToString() const {
  std::string out;
  Print(*this, &out);
  return out;
}

std::string EncodeSignature(const Signature& signature) {
  std::string out;
  internal::PutByte(&out, kVersion);
  EncodeNode(signature, &out);
  return out;
}

Result<Signature> DecodeSignature(std::string_view bytes) { return Decoder(bytes).Decode(); }

}  // namespace reverb
