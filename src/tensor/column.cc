#include "tensor/column.h"

#include <array>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>

#include "tensor/byte_io.h"
#include "tensor/checksum.h"
#include "tensor/delta.h"
#include "tensor/lz4_strided.h"
#include "tensor/scratch.h"

namespace reverb::internal {
namespace {

constexpr size_t kMinCompressBytes = 256;
constexpr uint32_t kProbeEvery = 64;  // chunks
constexpr double kRatioShift = 2.0;   // probe again if the ratio changed by this factor
constexpr size_t kProbeWindow = 2048;
constexpr size_t kProbeWindows = 3;
// Block sizes for reading single rows, and the share of the raw bytes that they may cost.
constexpr std::array<uint64_t, 3> kSmallBlockBytes = {8 << 10, 16 << 10, 32 << 10};
constexpr uint64_t kSmallBlockCost = 128;
constexpr size_t kMinTrialBytes = 8 << 10;
constexpr size_t kMaxStrides = 4;
// LZ4 copies a match that ends a prefix byte by byte, and rows often end within a long one: decoding a little
// more is faster. Long prefixes are decoded in place instead.
constexpr size_t kPrefixSlack = 256;
constexpr size_t kMinDirectPrefix = 16 << 10;
constexpr size_t kStringLengthBytes = sizeof(uint32_t);

// Returns the maximum compressed size that is worthwhile under kAuto.
constexpr uint64_t MaxWorthwhileSize(uint64_t raw_size) { return raw_size - raw_size / 8 - 1; }

std::string Number(uint64_t value) { return std::to_string(value); }

Status DamagedColumn(std::string what) {
  return Status::DataLoss("column: " + std::move(what) + "; the data is damaged")
      .WithDetail(Detail::kCorruptData);
}

Status DamagedBlock(size_t block, std::string what) {
  return DamagedColumn("block " + Number(block) + " " + std::move(what));
}

std::string ShapeString(std::span<const uint32_t> shape) {
  return Shape(std::vector<int64_t>(shape.begin(), shape.end())).ToString();
}

// Returns the number of rows for blocks of at most `max_block_bytes` and of about equal size.
uint32_t ChooseRowsPerBlock(uint64_t raw_bytes, uint32_t rows, uint64_t max_block_bytes = kBlockBytes) {
  if (raw_bytes <= max_block_bytes) return rows;
  const uint64_t row_bytes = (raw_bytes + rows - 1) / rows;
  const auto max_rows = static_cast<uint32_t>(std::max<uint64_t>(max_block_bytes / row_bytes, 1));
  const uint32_t blocks = NumBlocks(rows, max_rows);
  return (rows - 1) / blocks + 1;
}

// Returns the strides of an array of rows, the longest ones that a match can have; none for strings.
std::vector<uint32_t> StridesOf(DType dtype, std::span<const uint32_t> row_shape) {
  std::vector<uint32_t> strides;
  uint64_t stride = ItemSize(dtype);
  for (size_t i = row_shape.size(); i-- > 0;) {
    stride *= row_shape[i];
    if (stride == 0 || stride > std::numeric_limits<uint16_t>::max()) break;
    if (strides.empty() || strides.back() != stride) strides.push_back(static_cast<uint32_t>(stride));
  }
  if (strides.size() > kMaxStrides) strides.erase(strides.begin(), strides.end() - kMaxStrides);
  return strides;
}

std::optional<Codec> CodecOf(CodecPolicy policy) {
  switch (policy) {
    case CodecPolicy::kAuto:
    case CodecPolicy::kLz4:
      return Codec::kLz4;
    case CodecPolicy::kZstd:
      return Codec::kZstd;
    case CodecPolicy::kSnappy:
      return Codec::kSnappy;
    case CodecPolicy::kNone:
      break;
  }
  return std::nullopt;
}

}  // namespace

// --- Encoding ---

ColumnEncoder::ColumnEncoder(DType dtype, std::vector<uint32_t> row_shape, CodecPolicy policy)
    : dtype_(dtype),
      row_shape_(std::move(row_shape)),
      policy_(policy),
      row_elements_(NumElements(row_shape_)),
      row_bytes_([&] {
        uint64_t bytes = 0;
        const bool overflow = __builtin_mul_overflow(row_elements_, uint64_t{ItemSize(dtype_)}, &bytes);
        return overflow ? std::numeric_limits<uint64_t>::max() : bytes;
      }()),
      strides_(StridesOf(dtype_, row_shape_)) {}

Status ColumnEncoder::CheckShape(uint32_t rows) const {
  constexpr DecodeLimits limits;
  if (!IsKnownDType(static_cast<uint8_t>(dtype_))) {
    return Status::InvalidArgument("column: dtype number " + Number(static_cast<uint8_t>(dtype_)) +
                                   " is not known; use one of those in reverb/tensor.h");
  }
  if (row_shape_.size() > kMaxRowRank) {
    return Status::InvalidArgument("column: rows have " + Number(row_shape_.size()) +
                                   " dimensions, at most " + Number(kMaxRowRank) + " are allowed");
  }
  if (rows == 0 || rows > limits.max_rows) {
    return Status::InvalidArgument("column: " + Number(rows) + " rows in a chunk, 1 to " +
                                   Number(limits.max_rows) + " are allowed; use another chunk length");
  }
  const bool too_large = dtype_ == DType::kString
                             ? row_elements_ > limits.raw_bytes() / kMinStringBytes / rows
                             : row_bytes_ > limits.raw_bytes() / rows;
  if (too_large) {
    return Status::InvalidArgument("column: " + Number(rows) + " rows of " + std::string(DTypeName(dtype_)) +
                                   ShapeString(row_shape_) + " take more than the " +
                                   Number(limits.raw_bytes()) +
                                   " bytes allowed in a chunk; use shorter chunks or smaller tensors");
  }
  return Status::Ok();
}

Result<ColumnHeader> ColumnEncoder::Encode(std::span<const uint8_t> raw_rows, uint32_t rows,
                                           std::vector<uint8_t>* payload) {
  ColumnHeader header;
  REVERB_RETURN_IF_ERROR(Encode(raw_rows, rows, payload, &header));
  return header;
}

Result<ColumnHeader> ColumnEncoder::EncodeStrings(std::span<const std::string_view> elements, uint32_t rows,
                                                  std::vector<uint8_t>* payload) {
  ColumnHeader header;
  REVERB_RETURN_IF_ERROR(EncodeStrings(elements, rows, payload, &header));
  return header;
}

void ColumnEncoder::Begin(uint32_t rows_per_block, uint32_t num_blocks, ColumnHeader* header) const {
  header->dtype = dtype_;
  header->codec = Codec::kRaw;
  header->delta = false;
  header->row_shape.assign(row_shape_.begin(), row_shape_.end());
  header->rows_per_block = rows_per_block;
  header->blocks.clear();
  header->blocks.reserve(num_blocks);
}

Status ColumnEncoder::CheckRows(std::span<const uint8_t> raw_rows, uint32_t rows) const {
  REVERB_RETURN_IF_ERROR(CheckShape(rows));
  if (dtype_ == DType::kString) {
    return Status::InvalidArgument("column: string rows were given as plain bytes; use EncodeStrings");
  }
  if (raw_rows.size() != rows * row_bytes_) {
    return Status::InvalidArgument("column: " + Number(rows) + " rows of " + Number(row_bytes_) +
                                   " bytes need " + Number(rows * row_bytes_) + " bytes, but " +
                                   Number(raw_rows.size()) + " were given; pass exactly the rows");
  }
  return Status::Ok();
}

Result<bool> ColumnEncoder::StoresRaw(std::span<const uint8_t> raw_rows, uint32_t rows,
                                      ColumnHeader* header) {
  REVERB_RETURN_IF_ERROR(CheckRows(raw_rows, rows));
  const uint32_t rows_per_block = ChooseRowsPerBlock(raw_rows.size(), rows);
  REVERB_ASSIGN_OR_RETURN(next_choice_, Choose(raw_rows, raw_rows.size(), rows_per_block));
  if (next_choice_->codec != Codec::kRaw) return false;
  const uint32_t num_blocks = NumBlocks(rows, rows_per_block);
  Begin(rows_per_block, num_blocks, header);
  for (uint32_t block = 0; block < num_blocks; ++block) {
    const uint32_t count = std::min(rows_per_block, rows - block * rows_per_block);
    const auto size = static_cast<uint32_t>(count * row_bytes_);
    header->blocks.push_back({.stored_size = size, .raw_size = size, .checksum = 0});
  }
  return true;
}

Status ColumnEncoder::Encode(std::span<const uint8_t> raw_rows, uint32_t rows, std::vector<uint8_t>* payload,
                             ColumnHeader* header) {
  REVERB_RETURN_IF_ERROR(CheckRows(raw_rows, rows));
  if (!next_choice_) {
    REVERB_ASSIGN_OR_RETURN(next_choice_,
                            Choose(raw_rows, raw_rows.size(), ChooseRowsPerBlock(raw_rows.size(), rows)));
  }
  const Choice choice = *std::exchange(next_choice_, std::nullopt);
  const uint32_t rows_per_block = ChooseRowsPerBlock(raw_rows.size(), rows, choice.max_block_bytes);
  const uint32_t num_blocks = NumBlocks(rows, rows_per_block);
  Begin(rows_per_block, num_blocks, header);

  const size_t size_before = payload->size();
  if (choice.codec == Codec::kRaw && payload->capacity() - size_before < raw_rows.size()) {
    payload->reserve(std::max(size_before + raw_rows.size(), size_before * 2));
  }
  for (uint32_t block = 0; block < num_blocks; ++block) {
    const uint32_t first = block * rows_per_block;
    const uint32_t count = std::min(rows_per_block, rows - first);
    const Status status =
        AppendBlock(raw_rows.subspan(first * row_bytes_, count * row_bytes_), choice, payload, header);
    if (!status.ok()) {
      payload->resize(size_before);
      return status;
    }
  }
  Finish(choice, header);
  return Status::Ok();
}

Status ColumnEncoder::EncodeStrings(std::span<const std::string_view> elements, uint32_t rows,
                                    std::vector<uint8_t>* payload, ColumnHeader* header) {
  REVERB_RETURN_IF_ERROR(CheckShape(rows));
  if (dtype_ != DType::kString) {
    return Status::InvalidArgument("column: dtype is " + std::string(DTypeName(dtype_)) +
                                   ", but strings were given; use Encode");
  }
  if (elements.size() != rows * row_elements_) {
    return Status::InvalidArgument("column: " + Number(rows) + " rows of " + Number(row_elements_) +
                                   " strings need " + Number(rows * row_elements_) + " strings, but " +
                                   Number(elements.size()) + " were given; pass exactly the rows");
  }
  constexpr DecodeLimits limits;
  uint64_t raw_size = elements.size() * kStringLengthBytes;
  for (std::string_view element : elements) {
    // Checks each addition, so that the sum cannot overflow.
    if (element.size() > limits.raw_bytes() || (raw_size += element.size()) > limits.raw_bytes()) {
      return Status::InvalidArgument("column: " + Number(rows) + " rows of strings take more than the " +
                                     Number(limits.raw_bytes()) +
                                     " bytes allowed in a chunk; use shorter chunks or smaller strings");
    }
  }
  const uint32_t rows_per_block = ChooseRowsPerBlock(raw_size, rows);
  const uint32_t num_blocks = NumBlocks(rows, rows_per_block);
  Begin(rows_per_block, num_blocks, header);

  const size_t size_before = payload->size();
  Choice choice;
  for (uint32_t block = 0; block < num_blocks; ++block) {
    const uint32_t first = block * rows_per_block;
    const uint32_t count = std::min(rows_per_block, rows - first);
    const auto mine = elements.subspan(first * row_elements_, count * row_elements_);
    size_t block_size = mine.size() * kStringLengthBytes;
    for (std::string_view element : mine) block_size += element.size();

    const Scratch raw(Scratch::kStrings, block_size);
    Status status = raw.data() != nullptr ? Status::Ok() : Scratch::NoMemory(block_size);
    if (status.ok()) {
      uint8_t* lengths = raw.data();
      uint8_t* bytes = lengths + mine.size() * kStringLengthBytes;
      for (std::string_view element : mine) {
        const auto length = static_cast<uint32_t>(element.size());
        std::memcpy(lengths, &length, sizeof length);
        lengths += sizeof length;
        if (!element.empty()) std::memcpy(bytes, element.data(), element.size());
        bytes += element.size();
      }
      if (block == 0) {
        Result<Choice> chosen = Choose(raw.span(), raw_size, 1);
        if (chosen.ok()) choice = *chosen;
        status = std::move(chosen).status();
      }
    }
    if (status.ok()) status = AppendBlock(raw.span(), choice, payload, header);
    if (!status.ok()) {
      payload->resize(size_before);
      return status;
    }
  }
  Finish(choice, header);
  return Status::Ok();
}

Result<ColumnEncoder::Choice> ColumnEncoder::Choose(std::span<const uint8_t> sample, uint64_t raw_size,
                                                    uint32_t rows_per_block) {
  const std::optional<Codec> codec = CodecOf(policy_);
  if (!codec.has_value() || raw_size < kMinCompressBytes || sample.empty()) return Choice{};
  const bool delta_possible = DeltaWidth(dtype_) != 0 && rows_per_block > 1;
  if (policy_ != CodecPolicy::kAuto && !delta_possible) return Choice{*codec, false};

  // A probe of single-row blocks does not evaluate delta.
  if (probe_due_ || chunks_since_probe_ >= kProbeEvery || (delta_possible && !probed_delta_)) {
    REVERB_ASSIGN_OR_RETURN(choice_, Probe(sample, rows_per_block));
    const bool whole_rows = dtype_ != DType::kString;
    const size_t trial_bytes = whole_rows ? std::min<size_t>(sample.size(), rows_per_block * row_bytes_) : 0;
    if (choice_.codec == Codec::kLz4 && trial_bytes >= kMinTrialBytes && trial_bytes <= kMaxStridedBytes) {
      REVERB_ASSIGN_OR_RETURN(choice_, Refine(choice_, sample.first(trial_bytes)));
    }
    probe_due_ = false;
    probed_delta_ = delta_possible;
    chunks_since_probe_ = 0;
    ratio_at_probe_ = 0;
  }
  ++chunks_since_probe_;
  return choice_;
}

Result<ColumnEncoder::Choice> ColumnEncoder::Probe(std::span<const uint8_t> sample, uint32_t rows_per_block) {
  const Codec codec = *CodecOf(policy_);
  const size_t width = DeltaWidth(dtype_);
  const bool try_delta = width != 0 && rows_per_block > 1 && sample.size() >= 2 * row_bytes_;

  // Windows are spread evenly over the sample; a small sample is one window.
  const bool whole = sample.size() <= kProbeWindow * kProbeWindows;
  const size_t windows = whole ? 1 : kProbeWindows;
  const size_t size = whole ? sample.size() : kProbeWindow;
  constexpr size_t kMaxProbedBytes = kProbeWindow * kProbeWindows;
  std::array<uint8_t, kMaxProbedBytes> difference;
  std::array<uint8_t, kMaxProbedBytes> out;

  const auto compressed_size = [&](std::span<const uint8_t> window) -> Result<size_t> {
    REVERB_ASSIGN_OR_RETURN(const size_t written,
                            Compress(codec, window, std::span(out).first(window.size()), Effort::kProbe));
    return written == 0 ? window.size() : written;
  };

  uint64_t plain = 0;
  uint64_t delta = 0;
  for (size_t i = 0; i < windows; ++i) {
    size_t offset = windows == 1 ? 0 : (sample.size() - size) * i / (windows - 1);
    REVERB_ASSIGN_OR_RETURN(const size_t plain_size, compressed_size(sample.subspan(offset, size)));
    plain += plain_size;
    if (!try_delta) continue;
    if (whole) {
      DeltaEncode(sample.data(), difference.data(), sample.size() / row_bytes_, row_bytes_, width);
    } else {
      // A sample that has two rows and exceeds three windows has space for a window after its first row.
      offset = std::min(std::max<size_t>(offset, row_bytes_), sample.size() - size);
      offset -= offset % width;
      if (offset < row_bytes_) offset = row_bytes_;
      DeltaSubtract(sample.data() + offset, sample.data() + offset - row_bytes_, difference.data(), size,
                    width);
    }
    REVERB_ASSIGN_OR_RETURN(const size_t delta_size, compressed_size(std::span(difference).first(size)));
    delta += delta_size;
  }

  if (try_delta && !whole) {  // the first row of each block is not a difference
    delta = (delta * (rows_per_block - 1) + plain) / rows_per_block;
  }
  const bool use_delta = try_delta && delta < plain - plain / 16;
  if (policy_ != CodecPolicy::kAuto) return Choice{codec, use_delta};
  const uint64_t best = use_delta ? delta : plain;
  return best <= MaxWorthwhileSize(windows * size) ? Choice{codec, use_delta} : Choice{};
}

Result<ColumnEncoder::Choice> ColumnEncoder::Refine(Choice choice, std::span<const uint8_t> sample) const {
  Choice best = choice;
  REVERB_ASSIGN_OR_RETURN(uint64_t best_size, TrialSize(best, sample));
  const auto consider = [&](Choice other, uint64_t limit) -> Result<bool> {
    REVERB_ASSIGN_OR_RETURN(const uint64_t size, TrialSize(other, sample));
    if (size >= limit) return false;
    best = other;
    best_size = size;
    return true;
  };
  // LZ4's compressor is kept unless the other one saves something: it is faster for unstructured data.
  Choice strided = choice;
  strided.strided = true;
  REVERB_RETURN_IF_ERROR(consider(strided, best_size - best_size / 32).status());
  strided.delta = false;
  if (choice.delta) REVERB_RETURN_IF_ERROR(consider(strided, best_size).status());

  const uint64_t limit = best_size + sample.size() / kSmallBlockCost;
  const Choice with_large_blocks = best;
  for (const uint64_t bytes : kSmallBlockBytes) {
    if (bytes * 2 > sample.size()) break;
    for (Choice smaller : {with_large_blocks, strided}) {
      smaller.max_block_bytes = bytes;
      REVERB_ASSIGN_OR_RETURN(const bool is_good, consider(smaller, limit));
      if (is_good) return best;
    }
  }
  return best;
}

Result<uint64_t> ColumnEncoder::TrialSize(Choice choice, std::span<const uint8_t> rows) const {
  const uint64_t max_rows = std::max<uint64_t>(choice.max_block_bytes / row_bytes_, 1);
  uint64_t total = 0;
  while (!rows.empty()) {
    const std::span<const uint8_t> block = rows.first(std::min<size_t>(rows.size(), max_rows * row_bytes_));
    const Scratch compressed(Scratch::kCompressed, block.size());
    if (compressed.data() == nullptr) return Scratch::NoMemory(block.size());
    REVERB_ASSIGN_OR_RETURN(const size_t size, CompressBlock(block, choice, compressed.span()));
    total += (size == 0 ? block.size() : size) + sizeof(BlockInfo);
    rows = rows.subspan(block.size());
  }
  return total;
}

Result<size_t> ColumnEncoder::CompressBlock(std::span<const uint8_t> raw, Choice choice,
                                            std::span<uint8_t> out) const {
  const bool is_delta = choice.delta && raw.size() > row_bytes_;
  const Scratch difference(Scratch::kDelta, is_delta ? raw.size() : 0);
  std::span<const uint8_t> in = raw;
  if (is_delta) {
    if (difference.data() == nullptr) return Scratch::NoMemory(raw.size());
    DeltaEncode(raw.data(), difference.data(), raw.size() / row_bytes_, row_bytes_, DeltaWidth(dtype_));
    in = difference.span();
  }
  if (choice.strided && in.size() <= kMaxStridedBytes) return CompressLz4Strided(in, strides_, out);
  return Compress(choice.codec, in, out);
}

Status ColumnEncoder::AppendBlock(std::span<const uint8_t> raw, Choice choice, std::vector<uint8_t>* payload,
                                  ColumnHeader* header) const {
  const auto append = [&](std::span<const uint8_t> stored) {
    payload->insert(payload->end(), stored.data(), stored.data() + stored.size());
    const auto in_payload = std::span<const uint8_t>(*payload).last(stored.size());
    header->blocks.push_back(
        {static_cast<uint32_t>(stored.size()), static_cast<uint32_t>(raw.size()), Checksum(in_payload)});
  };
  if (choice.codec == Codec::kRaw || raw.size() < 2) {
    append(raw);
    return Status::Ok();
  }
  const size_t limit = policy_ == CodecPolicy::kAuto ? MaxWorthwhileSize(raw.size()) : raw.size() - 1;
  const Scratch compressed(Scratch::kCompressed, limit);
  if (compressed.data() == nullptr) return Scratch::NoMemory(limit);
  REVERB_ASSIGN_OR_RETURN(const size_t size, CompressBlock(raw, choice, compressed.span()));
  append(size == 0 ? raw : std::span<const uint8_t>(compressed.data(), size));
  return Status::Ok();
}

void ColumnEncoder::Finish(Choice choice, ColumnHeader* header) {
  uint64_t raw = 0;
  uint64_t stored = 0;
  for (const BlockInfo& block : header->blocks) {
    raw += block.raw_size;
    stored += block.stored_size;
  }
  if (stored < raw) {
    header->codec = choice.codec;
    header->delta = choice.delta;
  }
  if (choice.codec == Codec::kRaw) return;
  const double ratio = static_cast<double>(raw) / static_cast<double>(std::max<uint64_t>(stored, 1));
  if (ratio_at_probe_ == 0) {
    ratio_at_probe_ = ratio;
    // The chunk did not compress as the probe predicted: store raw data until the next probe.
    if (stored == raw && policy_ == CodecPolicy::kAuto) choice_ = Choice{};
  } else if (ratio > ratio_at_probe_ * kRatioShift || ratio < ratio_at_probe_ / kRatioShift) {
    probe_due_ = true;
  }
}

// --- Checking ---

namespace {

// Checks the sizes of one block, so that decoding it is safe.
Status CheckBlock(const ColumnView& column, size_t block, uint64_t row_elements, uint64_t row_bytes) {
  const BlockInfo& info = column.blocks[block];
  const uint64_t rows = column.rows_in_block(block);
  if (column.dtype == DType::kString) {
    // Avoids overflow of the product: up to 2^32 rows of 2^64 elements.
    if (row_elements > info.raw_size / kStringLengthBytes / rows ||
        (row_elements == 0 && info.raw_size != 0)) {
      return DamagedBlock(block, "states " + Number(info.raw_size) + " raw bytes, which cannot hold " +
                                     Number(rows) + " rows of " + Number(row_elements) + " strings");
    }
  } else if (row_bytes > std::numeric_limits<uint32_t>::max() || info.raw_size != rows * row_bytes) {
    return DamagedBlock(block, "states " + Number(info.raw_size) + " raw bytes for " + Number(rows) +
                                   " rows of " + Number(row_bytes) + " bytes");
  }
  if (info.stored_size > info.raw_size || (info.stored_size < info.raw_size && column.codec == Codec::kRaw)) {
    return DamagedBlock(block, "states " + Number(info.stored_size) + " stored bytes for " +
                                   Number(info.raw_size) + " raw bytes with codec " +
                                   std::string(CodecName(column.codec)));
  }
  if (info.raw_size > MaxRawSize(column.codec, info.stored_size)) {
    return DamagedBlock(block, "states that " + Number(info.stored_size) + " stored bytes become " +
                                   Number(info.raw_size) + " raw bytes, more than codec " +
                                   std::string(CodecName(column.codec)) + " can");
  }
  return Status::Ok();
}

Status CheckColumn(const ColumnView& column) {
  if (!IsKnownDType(static_cast<uint8_t>(column.dtype))) {
    return DamagedColumn("dtype number " + Number(static_cast<uint8_t>(column.dtype)) + " is not known");
  }
  if (!IsKnownCodec(static_cast<uint8_t>(column.codec))) {
    return DamagedColumn("codec number " + Number(static_cast<uint8_t>(column.codec)) + " is not known");
  }
  if (column.delta && (column.codec == Codec::kRaw || DeltaWidth(column.dtype) == 0)) {
    return DamagedColumn("delta is set for dtype " + std::string(DTypeName(column.dtype)) + " with codec " +
                         std::string(CodecName(column.codec)) + ", which is not allowed");
  }
  if (column.rows == 0 || column.rows_per_block == 0 || column.rows_per_block > column.rows ||
      column.blocks.size() != NumBlocks(column.rows, column.rows_per_block)) {
    return DamagedColumn(Number(column.rows) + " rows, " + Number(column.rows_per_block) +
                         " in each block, do not match " + Number(column.blocks.size()) + " blocks");
  }
  return Status::Ok();
}

}  // namespace

Status ValidateColumn(const ColumnView& column, uint64_t payload_size, const DecodeLimits& limits) {
  REVERB_RETURN_IF_ERROR(CheckColumn(column));
  if (column.row_shape.size() > kMaxRowRank) {
    return DamagedColumn("rows have " + Number(column.row_shape.size()) + " dimensions, at most " +
                         Number(kMaxRowRank) + " are allowed");
  }
  if (column.rows > limits.max_rows) {
    return DamagedColumn(Number(column.rows) + " rows, at most " + Number(limits.max_rows) + " are accepted");
  }
  const uint64_t row_elements = column.row_elements();
  const uint64_t row_bytes = column.row_bytes();
  if (column.dtype == DType::kString && row_elements > limits.raw_bytes() / kMinStringBytes / column.rows) {
    return DamagedColumn(Number(column.rows) + " rows of " + Number(row_elements) + " strings, at most " +
                         Number(limits.raw_bytes() / kMinStringBytes) + " strings are accepted in a chunk");
  }
  uint64_t raw = 0;
  uint64_t stored = 0;
  for (size_t block = 0; block < column.blocks.size(); ++block) {
    REVERB_RETURN_IF_ERROR(CheckBlock(column, block, row_elements, row_bytes));
    raw += column.blocks[block].raw_size;
    stored += column.blocks[block].stored_size;
  }
  if (raw > limits.raw_bytes()) {
    return DamagedColumn(Number(raw) + " raw bytes, at most " + Number(limits.raw_bytes()) +
                         " are accepted in a chunk");
  }
  if (stored != payload_size) {
    return DamagedColumn("the blocks take " + Number(stored) + " bytes, but the payload has " +
                         Number(payload_size));
  }
  return Status::Ok();
}

// --- Decoding ---

namespace {

// Returns the stored bytes of the blocks before `block`.
uint64_t OffsetOfBlock(const ColumnView& column, uint32_t block) {
  uint32_t next = 0;
  uint64_t offset = 0;
  if (const ColumnView::Marks& marks = column.marks;
      block > kBlocksPerMark && marks.offsets != nullptr && marks.blocks == column.blocks.data()) {
    const uint32_t mark = (marks.first_block + block) / kBlocksPerMark;  // within the column
    next = mark * kBlocksPerMark - marks.first_block;
    offset = marks.offsets[mark] - marks.payload_offset;
  }
  for (; next < block; ++next) offset += column.blocks[next].stored_size;
  return offset;
}

}  // namespace

BlockRange TouchedBlocks(const ColumnView& column, uint32_t offset, uint32_t count) {
  BlockRange range;
  if (count == 0) return range;
  assert(uint64_t{offset} + count <= column.rows);
  if (column.blocks.size() == 1) {
    return {.first = 0, .count = 1, .payload_offset = 0, .payload_size = column.blocks[0].stored_size};
  }
  range.first = offset / column.rows_per_block;
  const uint32_t last = (offset + count - 1) / column.rows_per_block;
  range.count = last - range.first + 1;
  range.payload_offset = OffsetOfBlock(column, range.first);
  if (range.count <= kBlocksPerMark) {
    for (uint32_t i = range.first; i <= last; ++i) range.payload_size += column.blocks[i].stored_size;
  } else {
    range.payload_size = OffsetOfBlock(column, last) + column.blocks[last].stored_size - range.payload_offset;
  }
  return range;
}

namespace {

// Checks that the touched blocks are in bounds, and calls
//   visit(block, stored bytes, first requested row in the block, number of requested rows)
// for each of them.
template <typename Visit>
Status ForEachBlock(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset,
                    uint32_t count, uint32_t first_block, uint64_t row_elements, uint64_t row_bytes,
                    const Visit& visit) {
  REVERB_RETURN_IF_ERROR(CheckColumn(column));
  if (uint64_t{offset} + count > column.rows) {
    return Status::InvalidArgument("column: rows " + Number(offset) + " to " +
                                   Number(uint64_t{offset} + count) + " were requested, but it has " +
                                   Number(column.rows) + "; request fewer");
  }
  if (count == 0) return Status::Ok();
  const uint32_t rows_per_block = column.rows_per_block;
  const uint32_t first = column.blocks.size() == 1 ? 0 : offset / rows_per_block;
  if (first < first_block) {
    return Status::InvalidArgument("column: row " + Number(offset) + " is in block " + Number(first) +
                                   ", but the payload starts with block " + Number(first_block) +
                                   "; request rows of the available blocks");
  }
  size_t position = OffsetOfBlock(column, first) - OffsetOfBlock(column, first_block);
  uint64_t row = offset;
  const uint64_t end = uint64_t{offset} + count;
  for (uint32_t block = first; row < end; ++block) {
    REVERB_RETURN_IF_ERROR(CheckBlock(column, block, row_elements, row_bytes));
    const size_t stored_size = column.blocks[block].stored_size;
    if (position > payload.size() || stored_size > payload.size() - position) {
      return DamagedBlock(block, "ends at byte " + Number(position + stored_size) + ", but the payload has " +
                                     Number(payload.size()));
    }
    const uint64_t block_start = uint64_t{block} * rows_per_block;
    const uint64_t block_end = block_start + column.rows_in_block(block);
    const uint64_t wanted = std::min(end, block_end) - row;
    REVERB_RETURN_IF_ERROR(visit(block, payload.subspan(position, stored_size), row - block_start, wanted));
    row += wanted;
    position += stored_size;
  }
  return Status::Ok();
}

}  // namespace

Status DecodeRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset, uint32_t count,
                  std::span<uint8_t> out, uint32_t first_block) {
  if (column.dtype == DType::kString) {
    return Status::InvalidArgument("column: its elements are strings; use DecodeStringRows");
  }
  const uint64_t row_bytes = column.row_bytes();
  uint64_t out_bytes = 0;
  if (__builtin_mul_overflow(row_bytes, uint64_t{count}, &out_bytes) || out.size() != out_bytes) {
    return Status::InvalidArgument("column: " + Number(count) + " rows of " + Number(row_bytes) +
                                   " bytes do not take the " + Number(out.size()) +
                                   " bytes of the output; pass exactly the space they need");
  }
  uint8_t* to = out.data();
  const auto visit = [&](uint32_t block, std::span<const uint8_t> stored, size_t first,
                         size_t wanted) -> Status {
    const BlockInfo& info = column.blocks[block];
    const size_t size = wanted * row_bytes;
    if (size == 0) return Status::Ok();
    uint8_t* const destination = to;
    to += size;
    if (info.stored_size == info.raw_size) {
      std::memcpy(destination, stored.data() + first * row_bytes, size);
      return Status::Ok();
    }
    const size_t width = DeltaWidth(column.dtype);
    if (first == 0 && size == info.raw_size) {
      REVERB_RETURN_IF_ERROR(Decompress(column.codec, stored, {destination, size}));
      if (column.delta) DeltaDecode(destination, wanted, row_bytes, width);
      return Status::Ok();
    }
    if (first == 0 && size >= kMinDirectPrefix && CanDecompressPrefix(column.codec)) {
      REVERB_RETURN_IF_ERROR(DecompressPrefix(column.codec, stored, {destination, size}));
      if (column.delta) DeltaDecode(destination, wanted, row_bytes, width);
      return Status::Ok();
    }
    const size_t end = (first + wanted) * row_bytes;
    const size_t decoded = CanDecompressPrefix(column.codec)
                               ? std::min<size_t>(end + kPrefixSlack, info.raw_size)
                               : info.raw_size;
    const Scratch raw(Scratch::kDecoded, decoded);
    if (raw.data() == nullptr) return Scratch::NoMemory(decoded);
    REVERB_RETURN_IF_ERROR(decoded == info.raw_size ? Decompress(column.codec, stored, raw.span())
                                                    : DecompressPrefix(column.codec, stored, raw.span()));
    if (column.delta) DeltaDecode(raw.data(), first + wanted, row_bytes, width);
    std::memcpy(destination, raw.data() + first * row_bytes, size);
    return Status::Ok();
  };
  return ForEachBlock(column, payload, offset, count, first_block, 0, row_bytes, visit);
}

Status DecodeStringRows(const ColumnView& column, std::span<const uint8_t> payload, uint32_t offset,
                        uint32_t count, std::vector<std::string>* out, uint32_t first_block) {
  if (column.dtype != DType::kString) {
    return Status::InvalidArgument("column: its dtype is " + std::string(DTypeName(column.dtype)) +
                                   ", not string; use DecodeRows");
  }
  const uint64_t row_elements = column.row_elements();
  const auto visit = [&](uint32_t block, std::span<const uint8_t> stored, size_t first,
                         size_t wanted) -> Status {
    const BlockInfo& info = column.blocks[block];
    if (row_elements == 0) return Status::Ok();
    const bool compressed = info.stored_size != info.raw_size;
    const Scratch room(Scratch::kDecoded, compressed ? info.raw_size : 0);
    std::span<const uint8_t> raw = stored;
    if (compressed) {
      if (room.data() == nullptr) return Scratch::NoMemory(info.raw_size);
      REVERB_RETURN_IF_ERROR(Decompress(column.codec, stored, room.span()));
      raw = room.span();
    }
    // CheckBlock() has verified that the lengths fit.
    const size_t elements = column.rows_in_block(block) * row_elements;
    const size_t begin = first * row_elements;
    const size_t end = begin + wanted * row_elements;
    uint64_t position = elements * kStringLengthBytes;
    for (size_t i = 0; i < elements; ++i) {
      uint32_t length = 0;
      std::memcpy(&length, raw.data() + i * kStringLengthBytes, sizeof length);
      if (length > raw.size() - position) {
        return DamagedBlock(block, "has a string of " + Number(length) + " bytes, but " +
                                       Number(raw.size() - position) + " are left in it");
      }
      if (i >= begin && i < end) {
        out->emplace_back(reinterpret_cast<const char*>(raw.data()) + position, length);
      }
      position += length;
    }
    if (position != raw.size()) {
      return DamagedBlock(block, "has " + Number(raw.size() - position) + " bytes after its last string");
    }
    return Status::Ok();
  };
  return ForEachBlock(column, payload, offset, count, first_block, row_elements, 0, visit);
}

namespace {

// checksum_of(position, size) returns the checksum of stored bytes, of which there are `stored`.
template <typename F>
Status VerifyBlocks(const ColumnView& column, size_t stored, uint32_t first_block, uint32_t num_blocks,
                    const F& checksum_of) {
  size_t position = 0;
  for (uint32_t block = first_block; block < first_block + num_blocks; ++block) {
    const BlockInfo& info = column.blocks[block];
    if (info.stored_size > stored - position) {
      return DamagedBlock(block, "ends at byte " + Number(uint64_t{position} + info.stored_size) +
                                     ", but the payload has " + Number(stored));
    }
    const uint64_t found = checksum_of(position, info.stored_size);
    if (found != info.checksum) {
      return DamagedBlock(block,
                          "has checksum " + Number(found) + ", its header states " + Number(info.checksum));
    }
    position += info.stored_size;
  }
  return Status::Ok();
}

}  // namespace

Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload) {
  return VerifyChecksums(column, payload, 0, static_cast<uint32_t>(column.blocks.size()));
}

Status VerifyChecksums(const ColumnView& column, const ScatteredBytes& payload) {
  return VerifyBlocks(column, payload.size(), 0, static_cast<uint32_t>(column.blocks.size()),
                      [&](size_t position, size_t size) {
                        const auto parts = payload.PartsFrom(&position);
                        return Checksum(parts, position, size);
                      });
}

Status VerifyChecksums(const ColumnView& column, std::span<const uint8_t> payload, uint32_t first_block,
                       uint32_t num_blocks) {
  if (uint64_t{first_block} + num_blocks > column.blocks.size()) {
    return Status::InvalidArgument(
        "column: blocks " + Number(first_block) + " to " + Number(uint64_t{first_block} + num_blocks) +
        " were requested, but it has " + Number(column.blocks.size()) + "; request fewer");
  }
  return VerifyBlocks(column, payload.size(), first_block, num_blocks, [&](size_t position, size_t size) {
    return Checksum(payload.subspan(position, size));
  });
}

}  // namespace reverb::internal
