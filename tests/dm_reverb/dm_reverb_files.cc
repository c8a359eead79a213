#include "dm_reverb/dm_reverb_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <span>

#include "checkpoint/dm_reverb/crc32c.h"
#include "tensor/byte_io.h"
#include "tensor/codec.h"

namespace reverb::test {
namespace {

std::span<const uint8_t> Span(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

void PutFixed32(std::string* out, uint32_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof value);
}

void PutChecksum(std::string* out, std::string_view of) {
  PutFixed32(out, internal::MaskCrc32c(internal::Crc32c(Span(of))));
}

}  // namespace

Message& Message::Int(uint32_t field, int64_t value) {
  internal::PutVarint(&bytes_, field << 3);
  internal::PutVarint(&bytes_, static_cast<uint64_t>(value));
  return *this;
}

Message& Message::Double(uint32_t field, double value) {
  internal::PutVarint(&bytes_, field << 3 | 1);
  internal::PutFixed64(&bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

Message& Message::Bytes(uint32_t field, std::string_view value) {
  internal::PutVarint(&bytes_, field << 3 | 2);
  internal::PutString(&bytes_, value);
  return *this;
}

std::string Frames(const std::vector<std::string>& records) {
  std::string out;
  for (const std::string& record : records) {
    std::string length;
    internal::PutFixed64(&length, record.size());
    out += length;
    PutChecksum(&out, length);
    out += record;
    PutChecksum(&out, record);
  }
  return out;
}

std::string Zlib(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  EXPECT_EQ(Z_OK, compress(reinterpret_cast<Bytef*>(out.data()), &size,
                           reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  out.resize(size);
  return out;
}

void CheckpointFiles::Write(FakeFileSystem* fs, const std::string& path) const {
  EXPECT_TRUE(fs->CreateDir(path, internal::FileSystem::Parents::kCreateMissing).ok());
  const auto write = [&](const char* name, const std::vector<std::string>& records) {
    const std::string frames = Frames(records);
    EXPECT_TRUE(fs->WriteAll(path + '/' + name, compressed ? Zlib(frames) : frames).ok());
  };
  write("tables.tfrecord", tables);
  if (has_items_file) write("items.tfrecord", items);
  write("chunks.tfrecord", chunks);
  if (is_done) {
    EXPECT_TRUE(fs->WriteAll(path + "/DONE", "").ok());
  }
}

std::string Snappy(std::string_view bytes) {
  std::string out(32 + bytes.size() + bytes.size() / 6, '\0');
  const Result<size_t> size = internal::Compress(
      internal::Codec::kSnappy, Span(bytes), std::span(reinterpret_cast<uint8_t*>(out.data()), out.size()));
  EXPECT_TRUE(size.ok());
  out.resize(*size);
  return out;
}

Message ShapeOf(std::initializer_list<int64_t> dims) {
  Message shape;
  for (const int64_t dim : dims) shape.Add(2, Message().Int(1, dim));
  return shape;
}

Message TensorOf(DType dtype, std::initializer_list<int64_t> dims, std::string_view content) {
  return Message().Int(1, static_cast<int64_t>(dtype)).Add(2, ShapeOf(dims)).Bytes(4, content);
}

std::string StringList(const std::vector<std::string>& strings) {
  std::string out;
  for (const std::string& string : strings) internal::PutVarint(&out, string.size());
  for (const std::string& string : strings) out += string;
  return out;
}

Message RangeOf(uint64_t episode, int32_t start, int32_t end) {
  return Message().Int(1, static_cast<int64_t>(episode)).Int(2, start).Int(3, end);
}

Message ChunkOf(uint64_t key, const Message& range, const std::vector<Message>& tensors, bool delta) {
  Message data;
  for (const Message& tensor : tensors) data.Add(1, tensor);
  return Message().Int(1, static_cast<int64_t>(key)).Add(2, range).Int(4, delta).Add(5, data);
}

Message ItemOf(uint64_t key, std::string_view table, double priority, int32_t times_sampled, int64_t seconds,
               const std::vector<ColumnOf>& columns) {
  Message trajectory;
  for (const ColumnOf& column : columns) {
    Message out;
    for (const SliceOf& slice : column.slices) {
      out.Add(1, Message()
                     .Int(1, static_cast<int64_t>(slice.chunk))
                     .Int(2, slice.offset)
                     .Int(3, slice.length)
                     .Int(4, slice.index));
    }
    if (column.squeeze) out.Int(2, 1);
    trajectory.Add(1, out);
  }
  return Message()
      .Int(1, static_cast<int64_t>(key))
      .Bytes(2, table)
      .Double(5, priority)
      .Int(6, times_sampled)
      .Add(7, Message().Int(1, seconds).Int(2, 5))
      .Add(8, trajectory);
}

Message LimiterOf(int64_t inserts, int64_t samples, int64_t deletes) {
  return Message()
      .Double(2, 1.0)
      .Double(3, -1e300)
      .Double(4, 1e300)
      .Int(5, 1)
      .Int(6, samples)
      .Int(7, inserts)
      .Int(8, deletes);
}

Message TableOf(std::string_view name, const Message& limiter, int64_t max_size) {
  return Message().Bytes(1, name).Add(3, limiter).Add(4, Uniform()).Add(5, Fifo()).Int(6, max_size);
}

Message Fifo() { return Message().Int(1, 1).Int(7, 1); }
Message Uniform() { return Message().Int(2, 1); }
Message Prioritized(double exponent) { return Message().Add(3, Message().Double(1, exponent)); }
Message Heap(bool min_heap) { return Message().Add(4, Message().Int(1, min_heap)).Int(7, 1); }

}  // namespace reverb::test
