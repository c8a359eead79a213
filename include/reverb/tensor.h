// tensor.h — the values of a step: element types, shapes, specs, tensors.
//
// Ownership: TensorView borrows (dims and data must outlive it); Tensor owns its bytes, aligned to 64, and
// can be moved, not copied. Threads: values; distinct objects may be used from distinct threads. Layout:
// row-major, native little-endian. Elements of dtype string are byte strings that may contain NULs.
#ifndef REVERB_TENSOR_H_
#define REVERB_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/status.h"

namespace reverb {

namespace internal {
class BlockPool;
}  // namespace internal

// The numbers (TensorFlow's) are stored and sent: never change them.
enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kFloat16 = 19,
  kUint32 = 22,
  kUint64 = 23,
};

// Returns all dtypes in the order of their numbers.
std::span<const DType> AllDTypes();

bool IsKnownDType(uint8_t number);

// Returns the bytes of one element; 0 for string and for numbers that are not a DType.
constexpr size_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kInt16:
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUint32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUint64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    case DType::kString:
      return 0;
  }
  return 0;
}

// Returns true for signed and unsigned integers; bool is not an integer type.
constexpr bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
      return true;
    default:
      return false;
  }
}

// Returns NumPy's name, such as "float32"; "unknown" for numbers that are not a DType.
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

// The size of each dimension. Some or all of them may be unknown.
class Shape {
 public:
  static constexpr int64_t kUnknownDim = -1;

  Shape() = default;  // rank 0: a scalar
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}
  static Shape UnknownRank() {
    Shape shape;
    shape.has_rank_ = false;
    return shape;
  }

  bool has_rank() const { return has_rank_; }
  // 0 if the rank is unknown.
  size_t rank() const { return dims_.size(); }
  // Empty if the rank is unknown.
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t dim(size_t i) const { return dims_[i]; }
  bool IsFullyDefined() const;

  // An unknown rank is compatible with all shapes. Otherwise the ranks must be equal, and each pair of
  // dimensions must be equal or contain an unknown one.
  bool IsCompatibleWith(const Shape& other) const;

  // INVALID_ARGUMENT if a dimension is unknown or negative, or if the product overflows.
  Result<int64_t> NumElements() const;

  // "[?, 84, 84]", "[]" for a scalar, "<unknown>" for an unknown rank.
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  bool has_rank_ = true;
  std::vector<int64_t> dims_;
};

// A leaf of a signature: the dtype and shape of the tensors at its place.
struct TensorSpec {
  std::string name;  // may be empty
  DType dtype = DType::kFloat32;
  Shape shape;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Returns "float32[84, 84]", followed by the name in quotes if there is one.
std::string ToString(const TensorSpec& spec);

// A borrowed tensor. For dtype string `data` points to std::string_view elements.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> dims;
  const void* data = nullptr;

  // REQUIRES: no dimension is negative, and the product does not overflow.
  size_t num_elements() const {
    size_t count = 1;
    for (int64_t dim : dims) count *= static_cast<size_t>(dim);
    return count;
  }
  // 0 for dtype string.
  size_t num_bytes() const { return num_elements() * ItemSize(dtype); }
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(data), num_bytes()}; }
  // REQUIRES: dtype string.
  std::span<const std::string_view> strings() const {
    return {static_cast<const std::string_view*>(data), num_elements()};
  }
};

// Reuses memory for tensors of recurring sizes, such as batches, which avoids the system's zeroing of new
// pages. Keeps at most 32 unused blocks and 256 MiB. Tensors may outlive the pool. Threads: all methods may
// be called concurrently.
class TensorPool {
 public:
  TensorPool();

 private:
  friend class Tensor;
  std::shared_ptr<internal::BlockPool> blocks_;
};

// An owned tensor of known shape.
class Tensor {
 public:
  static constexpr size_t kAlignment = 64;

  Tensor() = default;  // an empty float32 vector
  // Leaves the elements of a fixed-size dtype uninitialised; strings are empty. INVALID_ARGUMENT for an
  // invalid dtype or shape, RESOURCE_EXHAUSTED if the allocation fails.
  static Result<Tensor> Allocate(DType dtype, std::vector<int64_t> dims);
  // Allocates from a pool. The memory returns to the pool.
  static Result<Tensor> Allocate(DType dtype, std::vector<int64_t> dims, const TensorPool& pool);
  static Result<Tensor> CopyOf(const TensorView& view);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  size_t num_elements() const { return num_elements_; }
  // 0 for dtype string.
  size_t num_bytes() const { return num_elements_ * ItemSize(dtype_); }

  // Null for dtype string and for tensors without elements.
  uint8_t* data() { return bytes_.get(); }
  const uint8_t* data() const { return bytes_.get(); }
  std::span<uint8_t> bytes() { return {bytes_.get(), num_bytes()}; }
  std::span<const uint8_t> bytes() const { return {bytes_.get(), num_bytes()}; }
  // Empty unless the dtype is string.
  std::vector<std::string>& strings() { return strings_; }
  const std::vector<std::string>& strings() const { return strings_; }

  // REQUIRES: the dtype is not string.
  TensorView view() const { return {dtype_, dims_, bytes_.get()}; }
  // For all dtypes. Overwrites `*elements` if the dtype is string; it must then outlive the view.
  TensorView view(std::vector<std::string_view>* elements) const;

 private:
  struct AlignedFree {
    void operator()(uint8_t* block) const;
    std::shared_ptr<internal::BlockPool> pool;  // null: the heap
    size_t bytes;
  };

  static Result<Tensor> AllocateFrom(std::shared_ptr<internal::BlockPool> pool, DType dtype,
                                     std::vector<int64_t> dims);

  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> dims_ = {0};
  size_t num_elements_ = 0;
  std::unique_ptr<uint8_t[], AlignedFree> bytes_;
  std::vector<std::string> strings_;
};

}  // namespace reverb

#endif  // REVERB_TENSOR_H_
