#include "reverb/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/block_pool.h"

namespace reverb {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
};

constexpr std::array<Entry, 16> kEntries = {{
    {DType::kFloat32, "float32"},
    {DType::kFloat64, "float64"},
    {DType::kInt32, "int32"},
    {DType::kUint8, "uint8"},
    {DType::kInt16, "int16"},
    {DType::kInt8, "int8"},
    {DType::kString, "string"},
    {DType::kComplex64, "complex64"},
    {DType::kInt64, "int64"},
    {DType::kBool, "bool"},
    {DType::kBfloat16, "bfloat16"},
    {DType::kUint16, "uint16"},
    {DType::kComplex128, "complex128"},
    {DType::kFloat16, "float16"},
    {DType::kUint32, "uint32"},
    {DType::kUint64, "uint64"},
}};

constexpr auto kDTypes = [] {
  std::array<DType, kEntries.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kEntries[i].dtype;
  return all;
}();

// The size limit of a tensor, which rules out signed overflow in size computations.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 46;

}  // namespace

std::span<const DType> AllDTypes() { return kDTypes; }

bool IsKnownDType(uint8_t number) {
  // Bit i is set if i is the number of a dtype.
  constexpr uint32_t known = [] {
    uint32_t bits = 0;
    for (const Entry& entry : kEntries) bits |= 1u << static_cast<uint8_t>(entry.dtype);
    return bits;
  }();
  return number < 32 && ((known >> number) & 1) != 0;
}

std::string_view DTypeName(DType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "unknown";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

bool Shape::IsFullyDefined() const {
  return has_rank_ && std::all_of(dims_.begin(), dims_.end(), [](int64_t dim) { return dim >= 0; });
}

bool Shape::IsCompatibleWith(const Shape& other) const {
  if (!has_rank_ || !other.has_rank_) return true;
  return std::equal(dims_.begin(), dims_.end(), other.dims_.begin(), other.dims_.end(),
                    [](int64_t a, int64_t b) { return a == b || a == kUnknownDim || b == kUnknownDim; });
}

Result<int64_t> Shape::NumElements() const {
  if (!has_rank_) {
    return Status::InvalidArgument("shape <unknown> has no number of elements; give the shape a rank");
  }
  bool empty = false;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] < 0) {
      return Status::InvalidArgument("shape " + ToString() + " has no number of elements: dimension " +
                                     std::to_string(i) + " is " + std::to_string(dims_[i]) +
                                     "; give it a size of 0 or more");
    }
    empty |= dims_[i] == 0;
  }
  if (empty) return int64_t{0};
  int64_t count = 1;
  for (int64_t dim : dims_) {
    if (__builtin_mul_overflow(count, dim, &count)) {
      return Status::InvalidArgument("shape " + ToString() +
                                     " has more elements than 64 bits can count; use smaller dimensions");
    }
  }
  return count;
}

std::string Shape::ToString() const {
  if (!has_rank_) return "<unknown>";
  std::string out = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) out += ", ";
    out += dims_[i] == kUnknownDim ? "?" : std::to_string(dims_[i]);
  }
  return out + "]";
}

std::string ToString(const TensorSpec& spec) {
  std::string out(DTypeName(spec.dtype));
  out += spec.shape.ToString();
  if (!spec.name.empty()) out += " \"" + spec.name + "\"";
  return out;
}

void Tensor::AlignedFree::operator()(uint8_t* block) const {
  if (pool) {
    pool->Give(block, bytes);
  } else {
    internal::BlockPool::Free(block, bytes);
  }
}

TensorPool::TensorPool() : blocks_(std::make_shared<internal::BlockPool>()) {}

Result<Tensor> Tensor::Allocate(DType dtype, std::vector<int64_t> dims) {
  return AllocateFrom(nullptr, dtype, std::move(dims));
}

Result<Tensor> Tensor::Allocate(DType dtype, std::vector<int64_t> dims, const TensorPool& pool) {
  return AllocateFrom(pool.blocks_, dtype, std::move(dims));
}

Result<Tensor> Tensor::AllocateFrom(std::shared_ptr<internal::BlockPool> pool, DType dtype,
                                    std::vector<int64_t> dims) {
  if (!IsKnownDType(static_cast<uint8_t>(dtype))) {
    return Status::InvalidArgument("dtype number " + std::to_string(static_cast<int>(dtype)) +
                                   " is not known; use one of those in reverb/tensor.h");
  }
  const Shape shape(std::move(dims));
  REVERB_ASSIGN_OR_RETURN(const int64_t count, shape.NumElements());
  const auto item_size =
      static_cast<int64_t>(dtype == DType::kString ? sizeof(std::string) : ItemSize(dtype));
  if (count > kMaxTensorBytes / item_size) {
    return Status::InvalidArgument("a tensor " + ToString(TensorSpec{"", dtype, shape}) +
                                   " is larger than 64 TiB; use smaller dimensions");
  }
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.dims_ = shape.dims();
  tensor.num_elements_ = static_cast<size_t>(count);
  if (dtype == DType::kString) {
    tensor.strings_.resize(tensor.num_elements_);
  } else if (count > 0) {
    const size_t bytes = tensor.num_bytes();
    uint8_t* const block = pool ? pool->Take(bytes) : internal::BlockPool::Allocate(bytes);
    tensor.bytes_ = {block, AlignedFree{.pool = std::move(pool), .bytes = bytes}};
    if (tensor.bytes_ == nullptr) {
      return Status::ResourceExhausted("no memory for a tensor " + ToString(TensorSpec{"", dtype, shape}) +
                                       " of " + std::to_string(tensor.num_bytes()) + " bytes");
    }
  }
  return tensor;
}

Result<Tensor> Tensor::CopyOf(const TensorView& view) {
  REVERB_ASSIGN_OR_RETURN(Tensor tensor, Allocate(view.dtype, {view.dims.begin(), view.dims.end()}));
  if (view.dtype == DType::kString) {
    const auto elements = view.strings();
    for (size_t i = 0; i < elements.size(); ++i) tensor.strings_[i] = elements[i];
  } else if (tensor.num_bytes() > 0) {
    std::memcpy(tensor.data(), view.data, tensor.num_bytes());
  }
  return tensor;
}

TensorView Tensor::view(std::vector<std::string_view>* elements) const {
  if (dtype_ != DType::kString) return view();
  elements->assign(strings_.begin(), strings_.end());
  return {dtype_, dims_, elements->data()};
}

}  // namespace reverb
