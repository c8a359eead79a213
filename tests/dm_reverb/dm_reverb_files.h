// dm_reverb_files.h — writes the files of dm-reverb's checkpoints, for tests of their reader.
//
// Messages are built field by field, so that a test can also build those that are wrong.
#ifndef REVERB_TESTS_DM_REVERB_DM_REVERB_FILES_H_
#define REVERB_TESTS_DM_REVERB_DM_REVERB_FILES_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/tensor.h"
#include "testing/fake_file_system.h"

namespace reverb::test {

// A protobuf message. Every call appends a field.
class Message {
 public:
  Message& Int(uint32_t field, int64_t value);
  Message& Double(uint32_t field, double value);
  Message& Bytes(uint32_t field, std::string_view value);
  Message& Add(uint32_t field, const Message& message) { return Bytes(field, message.bytes()); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// --- Files ---

// The frames of a TFRecord file.
std::string Frames(const std::vector<std::string>& records);
// One zlib stream, as dm-reverb writes its files.
std::string Zlib(std::string_view bytes);

struct CheckpointFiles {
  std::vector<std::string> tables;
  std::vector<std::string> items;
  std::vector<std::string> chunks;
  bool compressed = true;
  bool has_items_file = true;
  bool is_done = true;

  // Puts them into the directory `path`.
  void Write(FakeFileSystem* fs, const std::string& path) const;
};

// --- Tensors and chunks ---

std::string Snappy(std::string_view bytes);
template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
Message ShapeOf(std::initializer_list<int64_t> dims);
// TensorProto with this content, as it is.
Message TensorOf(DType dtype, std::initializer_list<int64_t> dims, std::string_view content);
// The same with the values compressed.
template <typename T>
Message TensorOf(DType dtype, std::initializer_list<int64_t> dims, const std::vector<T>& values) {
  return TensorOf(dtype, dims, Snappy(RawBytes(values)));
}
// A string tensor's content.
std::string StringList(const std::vector<std::string>& strings);
// SequenceRange.
Message RangeOf(uint64_t episode, int32_t start, int32_t end);
// ChunkData.
Message ChunkOf(uint64_t key, const Message& range, const std::vector<Message>& tensors, bool delta = false);

// --- Tables and items ---

struct SliceOf {
  uint64_t chunk;
  int32_t offset;
  int32_t length;
  int32_t index = 0;
};
struct ColumnOf {
  std::vector<SliceOf> slices;
  bool squeeze = false;
};
// PrioritizedItem, inserted `seconds` after the epoch.
Message ItemOf(uint64_t key, std::string_view table, double priority, int32_t times_sampled, int64_t seconds,
               const std::vector<ColumnOf>& columns);
// RateLimiterCheckpoint of a limiter that waits for one item.
Message LimiterOf(int64_t inserts, int64_t samples = 0, int64_t deletes = 0);
// PriorityTableCheckpoint: uniform sampler, FIFO remover.
Message TableOf(std::string_view name, const Message& limiter, int64_t max_size = 100);
// KeyDistributionOptions.
Message Fifo();
Message Uniform();
Message Prioritized(double exponent);
Message Heap(bool min_heap);

}  // namespace reverb::test

#endif  // REVERB_TESTS_DM_REVERB_DM_REVERB_FILES_H_
