#include "tensor/proto_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace reverb::internal {
namespace {

constexpr const char* kTooLongVarint = "is a number of more than 64 bits";
constexpr const char* kDoesNotFit = "is a number that does not fit its type";

}  // namespace

ProtoReader::ProtoReader(ByteSlices slices) {
  if (slices.empty()) return;
  slice_ = slices.data();
  here_ = slice_->data();
  end_ = here_ + slice_->size();
  for (const ByteSlice& slice : slices.subspan(1)) rest_ += slice.size();
}

bool ProtoReader::Refill() {
  while (here_ == end_) {
    if (rest_ == 0) return false;
    ++slice_;
    const size_t size = std::min(slice_->size(), rest_);
    here_ = slice_->data();
    end_ = here_ + size;
    rest_ -= size;
  }
  return true;
}

bool ProtoReader::SlowVarint(uint64_t* value) {
  if (end_ - here_ >= static_cast<ptrdiff_t>(sizeof(uint64_t))) [[likely]] {
    uint64_t word = 0;
    std::memcpy(&word, here_, sizeof word);
    const uint64_t last_bytes = ~word & 0x8080808080808080;  // those without a following byte
    if (last_bytes != 0) [[likely]] {
      // The bytes up to the first of them, then their seven bits each in pairs, fours and all together.
      word &= (last_bytes ^ (last_bytes - 1)) & 0x7f7f7f7f7f7f7f7f;
      word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
      word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
      *value = (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
      here_ += std::countr_zero(last_bytes) / 8 + 1;
      return true;
    }
  }
  if (end_ - here_ >= static_cast<ptrdiff_t>(kMaxVarintBytes)) [[likely]] {
    const uint8_t* at = here_;
    const auto in_slice = [&at](uint8_t* byte) {
      *byte = *at++;
      return true;
    };
    if (DecodeVarint(in_slice, value) < 0) return Fail(kTooLongVarint);
    here_ = at;
    return true;
  }
  const auto next = [this](uint8_t* byte) {
    if (here_ == end_ && !Refill()) return false;
    *byte = *here_++;
    return true;
  };
  const int size = DecodeVarint(next, value);
  return size > 0 || Fail(size == 0 ? kCutShort : kTooLongVarint);
}

void ProtoReader::CopyOut(uint8_t* out, size_t size) {
  while (size > 0) {
    if (here_ == end_ && !Refill()) return;
    const size_t part = std::min(size, static_cast<size_t>(end_ - here_));
    std::memcpy(out, here_, part);
    here_ += part;
    out += part;
    size -= part;
  }
}

void ProtoReader::Advance(size_t size) {
  auto left = static_cast<size_t>(end_ - here_);
  if (size - left == rest_) {  // the last field, mostly a payload
    here_ = end_;
    rest_ = 0;
    return;
  }
  while (size > left && rest_ > 0) {  // there may be a thousand slices
    size -= left;
    ++slice_;
    left = std::min(slice_->size(), rest_);
    rest_ -= left;
    here_ = slice_->data();
    end_ = here_ + left;
  }
  here_ += std::min(size, left);
}

bool ProtoReader::Skip() {
  unread_ = false;
  uint64_t size = 0;
  switch (type_) {
    case ProtoType::kVarint:
      return Varint(&size);
    case ProtoType::kFixed64:
      size = 8;
      break;
    case ProtoType::kFixed32:
      size = 4;
      break;
    case ProtoType::kBytes:
      if (!Varint(&size)) return false;
      break;
  }
  if (size > remaining()) return Fail(kCutShort);
  Advance(size);
  return true;
}

bool ProtoReader::BadTag(uint64_t tag) {
  if (tag > std::numeric_limits<uint32_t>::max() || tag >> 3 == 0) {
    return Fail("is the number of a field that protobuf does not have");
  }
  field_ = static_cast<uint32_t>(tag >> 3);
  const auto type = static_cast<uint8_t>(tag & 7);
  if (type == 3 || type == 4) return Fail("is a group, which this protocol does not have");
  return Fail("has a wire type that protobuf does not have");
}

void ProtoReader::Read(uint32_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (!ok()) return;
  if (wide > std::numeric_limits<uint32_t>::max()) {
    Fail(kDoesNotFit);
  } else {
    *value = static_cast<uint32_t>(wide);
  }
}

void ProtoReader::Read(bool* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (ok()) *value = wide != 0;
}

void ProtoReader::Read(double* value) {
  uint64_t bits = 0;
  ReadFixed(&bits);
  if (ok()) *value = std::bit_cast<double>(bits);
}

void ProtoReader::ReadCount(int64_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (!ok()) return;
  if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Fail(kDoesNotFit);
  } else {
    *value = static_cast<int64_t>(wide);
  }
}

void ProtoReader::ReadCount(int32_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (!ok()) return;
  if (wide > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    Fail(kDoesNotFit);
  } else {
    *value = static_cast<int32_t>(wide);
  }
}

void ProtoReader::ReadInt(int32_t* value) {
  uint64_t wide = 0;
  Read(&wide);
  if (!ok()) return;
  const auto number = static_cast<int64_t>(wide);
  if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max()) {
    Fail(kDoesNotFit);
  } else {
    *value = static_cast<int32_t>(number);
  }
}

void ProtoReader::Read(std::string* value, size_t max_bytes) {
  ProtoReader bytes = ReadMessage();
  if (!ok()) return;
  if (bytes.remaining() > max_bytes) {
    Fail("is longer than is accepted", true);
    return;
  }
  value->resize(bytes.remaining());
  bytes.CopyRest(reinterpret_cast<uint8_t*>(value->data()));
}

void ProtoReader::Read(std::array<uint8_t, 16>* value) {
  ProtoReader bytes = ReadMessage();
  if (!ok()) return;
  if (bytes.remaining() == 0) {
    value->fill(0);
  } else if (bytes.remaining() != value->size()) {
    Fail("is an ID that does not have 16 bytes");
  } else {
    bytes.CopyRest(value->data());
  }
}

void ProtoReader::CopyRest(uint8_t* out) { CopyOut(out, remaining()); }

size_t ProtoReader::num_fixed64s() const {
  if (!ok() || type_ != ProtoType::kBytes) return 1;
  ProtoReader copy = *this;
  return copy.ReadMessage().remaining() / sizeof(uint64_t);
}

std::vector<ByteSlice> ProtoReader::RestInParts() const {
  std::vector<ByteSlice> parts;
  // Mostly, parts have the same size.
  const size_t first = here_ != end_ ? static_cast<size_t>(end_ - here_) : rest_ > 0 ? slice_[1].size() : 0;
  constexpr size_t kMaxReserved = 4096;
  if (first > 0) parts.reserve(std::min(kMaxReserved, remaining() / first + 1));
  if (here_ != end_) parts.emplace_back(here_, end_);
  size_t rest = rest_;
  for (const ByteSlice* slice = slice_; rest > 0;) {
    ++slice;
    const ByteSlice part = slice->first(std::min(slice->size(), rest));
    rest -= part.size();
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

Status ProtoReader::status(std::string_view message) const {
  if (error_ == nullptr) return Status::Ok();
  std::string text = "message " + std::string(message) + ": ";
  text += field_ == 0 ? std::string("a field") : "field " + std::to_string(field_);
  text += std::string(" ") + error_;
  if (too_large_) return Status::ResourceExhausted(std::move(text));
  return Status::DataLoss(std::move(text)).WithDetail(Detail::kCorruptData);
}

}  // namespace reverb::internal
