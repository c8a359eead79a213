// dm_reverb_files.h — writes dm-reverb checkpoints, for tests of their reader.
//
// Messages are built field by field, so that tests can also build invalid ones.
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

// Returns the frames of a TFRecord file.
std::string Frames(const std::vector<std::string>& records);
// Returns one zlib stream, as dm-reverb writes its files.
std::string Zlib(std::string_view bytes);

struct CheckpointFiles {
  std::vector<std::string> tables;
  std::vector<std::string> items;
  std::vector<std::string> chunks;
  bool compressed = true;
  bool has_items_file = true;
  bool is_done = true;

  // Writes the files into the directory `path`.
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
// Returns a TensorProto with the given content.
Message TensorOf(DType dtype, std::initializer_list<int64_t> dims, std::string_view content);
// Returns a TensorProto with compressed values.
template <typename T>
Message TensorOf(DType dtype, std::initializer_list<int64_t> dims, const std::vector<T>& values) {
  return TensorOf(dtype, dims, Snappy(RawBytes(values)));
}
// Returns the content of a string tensor.
std::string StringList(const std::vector<std::string>& strings);
// Returns a SequenceRange.
Message RangeOf(uint64_t episode, int32_t start, int32_t end);
// Returns a ChunkData.
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
// Returns a PrioritizedItem that was inserted `seconds` after the epoch.
Message ItemOf(uint64_t key, std::string_view table, double priority, int32_t times_sampled, int64_t seconds,
               const std::vector<ColumnOf>& columns);
// Returns a RateLimiterCheckpoint of a limiter that waits for one item.
Message LimiterOf(int64_t inserts, int64_t samples = 0, int64_t deletes = 0);
// Returns a PriorityTableCheckpoint with a uniform sampler and a FIFO remover.
Message TableOf(std::string_view name, const Message& limiter, int64_t max_size = 100);
// Returns KeyDistributionOptions.
Message Fifo();
Message Uniform();
Message Prioritized(double exponent);
Message Heap(bool min_heap);

}  // namespace reverb::test

#endif  // REVERB_TESTS_DM_REVERB_DM_REVERB_FILES_H_
