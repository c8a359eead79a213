#include "tensor/delta.h"

#include <cassert>
#include <cstring>

namespace reverb::internal {
namespace {

// Sixteen bytes as lanes of T, using compiler vector extensions: the same code compiles to SSE2 or NEON, at
// any optimisation level.
template <typename T>
struct Lanes {
  typedef T Type __attribute__((vector_size(16)));
};

template <typename V>
V Load(const uint8_t* bytes) {
  V value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename V>
void Store(uint8_t* bytes, const V& value) {
  std::memcpy(bytes, &value, sizeof value);
}

template <typename T>
void Subtract(const uint8_t* in, const uint8_t* previous, uint8_t* out, size_t size) {
  using V = typename Lanes<T>::Type;
  size_t i = 0;
  for (; i + 64 <= size; i += 64) {
    const V a = Load<V>(in + i) - Load<V>(previous + i);
    const V b = Load<V>(in + i + 16) - Load<V>(previous + i + 16);
    const V c = Load<V>(in + i + 32) - Load<V>(previous + i + 32);
    const V d = Load<V>(in + i + 48) - Load<V>(previous + i + 48);
    Store(out + i, a);
    Store(out + i + 16, b);
    Store(out + i + 32, c);
    Store(out + i + 48, d);
  }
  for (; i < size; i += sizeof(T)) {
    Store(out + i, static_cast<T>(Load<T>(in + i) - Load<T>(previous + i)));
  }
}

// Adds the preceding row, which ends where this one starts, to `row`.
template <typename T>
void AddPrevious(uint8_t* row, size_t row_bytes) {
  using V = typename Lanes<T>::Type;
  const uint8_t* previous = row - row_bytes;
  size_t i = 0;
  for (; i + 64 <= row_bytes; i += 64) {
    const V a = Load<V>(row + i) + Load<V>(previous + i);
    const V b = Load<V>(row + i + 16) + Load<V>(previous + i + 16);
    const V c = Load<V>(row + i + 32) + Load<V>(previous + i + 32);
    const V d = Load<V>(row + i + 48) + Load<V>(previous + i + 48);
    Store(row + i, a);
    Store(row + i + 16, b);
    Store(row + i + 32, c);
    Store(row + i + 48, d);
  }
  for (; i + 16 <= row_bytes; i += 16) Store(row + i, Load<V>(row + i) + Load<V>(previous + i));
  for (; i < row_bytes; i += sizeof(T)) {
    Store(row + i, static_cast<T>(Load<T>(row + i) + Load<T>(previous + i)));
  }
}

template <typename T>
void Decode(uint8_t* data, size_t rows, size_t row_bytes) {
  if (row_bytes == sizeof(T)) {  // scalars: keeps the running sum in a register
    T sum = 0;
    for (size_t i = 0; i < rows; ++i) {
      sum = static_cast<T>(sum + Load<T>(data + i * sizeof(T)));
      Store(data + i * sizeof(T), sum);
    }
    return;
  }
  for (size_t row = 1; row < rows; ++row) AddPrevious<T>(data + row * row_bytes, row_bytes);
}

}  // namespace

void DeltaSubtract(const uint8_t* in, const uint8_t* previous, uint8_t* out, size_t size, size_t width) {
  switch (width) {
    case 1:
      return Subtract<uint8_t>(in, previous, out, size);
    case 2:
      return Subtract<uint16_t>(in, previous, out, size);
    case 4:
      return Subtract<uint32_t>(in, previous, out, size);
    case 8:
      return Subtract<uint64_t>(in, previous, out, size);
    default:
      assert(false && "width is 1, 2, 4 or 8");
  }
}

void DeltaEncode(const uint8_t* in, uint8_t* out, size_t rows, size_t row_bytes, size_t width) {
  if (rows == 0 || row_bytes == 0) return;
  std::memcpy(out, in, row_bytes);
  DeltaSubtract(in + row_bytes, in, out + row_bytes, (rows - 1) * row_bytes, width);
}

void DeltaDecode(uint8_t* data, size_t rows, size_t row_bytes, size_t width) {
  if (rows <= 1 || row_bytes == 0) return;
  switch (width) {
    case 1:
      return Decode<uint8_t>(data, rows, row_bytes);
    case 2:
      return Decode<uint16_t>(data, rows, row_bytes);
    case 4:
      return Decode<uint32_t>(data, rows, row_bytes);
    case 8:
      return Decode<uint64_t>(data, rows, row_bytes);
    default:
      assert(false && "width is 1, 2, 4 or 8");
  }
}

}  // namespace reverb::internal
