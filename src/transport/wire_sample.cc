// Encodes the responses that carry samples, and bounds their size.
#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_pieces.h"
#include "transport/wire_seal.h"
#include "transport/wire_shared_columns.h"

namespace reverb::internal {

// By hand: with the list of fields, decoding a response of 512 small samples took a fifth longer.
void WriteSampleInfo(const Sample& sample, WireWriter* writer) {
  const auto info = writer->Begin(1);
  writer->Fixed64(1, sample.key);
  writer->Double(2, sample.priority);
  writer->Double(3, sample.probability);
  writer->Count(4, sample.table_size);
  writer->Count(5, sample.times_sampled);
  writer->Bool(6, sample.rate_limited);
  writer->Sint(7, sample.inserted_at);
  if (sample.lease_id != 0) writer->Fixed64(20, sample.lease_id);
  writer->End(info);
}

namespace {

// Collects one value of each sample, or one for all if they are equal, or nothing if that is 0.
template <typename Of>
std::span<const uint64_t> ValuesOf(std::span<const Sample> samples, std::vector<uint64_t>* values, Of of) {
  bool is_one = true;
  for (size_t i = 0; i < samples.size(); ++i) {
    (*values)[i] = of(samples[i]);
    is_one &= (*values)[i] == (*values)[0];
  }
  return std::span<const uint64_t>(*values).first(!is_one ? samples.size() : (*values)[0] == 0 ? 0 : 1);
}

// Writes SampleInfos: of many samples, a column of each value takes a fraction of the time.
void WriteSampleInfos(std::span<const Sample> samples, WireWriter* writer) {
  std::vector<uint64_t> values(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) values[i] = samples[i].key;
  writer->PackedFixed64(1, values);
  const auto fixed = [&](uint32_t field, auto of) {
    writer->PackedFixed64(field, ValuesOf(samples, &values, of));
  };
  const auto varint = [&](uint32_t field, auto of) {
    writer->PackedUint(field, ValuesOf(samples, &values, of));
  };
  fixed(2, [](const Sample& sample) { return std::bit_cast<uint64_t>(sample.priority); });
  fixed(3, [](const Sample& sample) { return std::bit_cast<uint64_t>(sample.probability); });
  varint(4, [](const Sample& sample) { return static_cast<uint64_t>(sample.table_size); });
  varint(5, [](const Sample& sample) { return static_cast<uint64_t>(sample.times_sampled); });
  varint(6, [](const Sample& sample) { return uint64_t{sample.rate_limited}; });
  fixed(7, [](const Sample& sample) { return static_cast<uint64_t>(sample.inserted_at); });
  // All samples of a reply are leased, or none.
  if (!samples.empty() && samples.front().lease_id != 0) {
    fixed(20, [](const Sample& sample) { return sample.lease_id; });
  }
}

}  // namespace

WireMessage EncodeSampleReply(const SampleReply& reply, const WireEncoding& encoding) {
  WireWriter writer(128 * reply.samples.size() + 128, encoding);
  if (reply.welcome) {
    const auto nested = writer.Begin(1);
    WriteWelcome(*reply.welcome, &writer);
    writer.End(nested);
  }
  writer.Uint(2, reply.request_id);
  if (reply.mass) {
    const auto nested = writer.Begin(25);
    WriteTableMass(*reply.mass, &writer);
    writer.End(nested);
  }
  const auto write_end = [&] {
    if (!reply.end) return;
    const auto nested = writer.Begin(4);
    WriteStatus(*reply.end, &writer);
    writer.End(nested);
  };
  if (reply.shared_columns) {
    if (const std::optional<SharedColumns> shared = SharedColumns::Find(reply.samples, writer)) {
      const auto nested = writer.Begin(8, 32 * reply.samples.size());
      WriteSampleInfos(reply.samples, &writer);
      writer.End(nested);
      write_end();
      shared->WriteColumns(5, &writer);
      shared->WritePieces(&writer);
      return writer.Finish();
    }
  }
  const PieceBuilder pieces(reply.samples);
  pieces.WriteSamples(3, &writer);
  write_end();
  pieces.WritePieces(&writer);
  return writer.Finish();
}

WireMessage EncodeInspectReply(const InspectReply& reply, const WireEncoding& encoding) {
  WireWriter writer(128 * reply.items.size() + 64, encoding);
  writer.Uint(1, reply.next_cursor);
  const PieceBuilder pieces(reply.items);
  pieces.WriteSamples(2, &writer);
  pieces.WritePieces(&writer);
  return writer.Finish();
}

std::vector<WireMessage> SplitIntoParts(WireMessage response) {
  response.Seal(0);
  std::vector<WireMessage> messages;
  uint64_t left = response.total_bytes();
  auto from = response.parts().begin();
  size_t offset = 0;  // in *from
  while (left > 0) {
    constexpr uint64_t kHeaderBytes = 64;
    uint64_t size = std::min(left, kMaxPartBytes - kHeaderBytes);
    left -= size;
    WireWriter writer;
    writer.Uint(kResponseBytesField, response.total_bytes());
    writer.BeginPayload(kPartField, size);
    while (size > 0) {
      const size_t taken = std::min<uint64_t>(size, from->size() - offset);
      writer.AppendShared(from->Slice(offset, taken));
      size -= taken;
      offset += taken;
      if (offset < from->size()) continue;
      ++from;
      offset = 0;
    }
    messages.push_back(writer.Finish());
  }
  return messages;
}

// --- Sizes ---

uint64_t MaxSampleBytes(const Trajectory& trajectory) {
  std::vector<Sample> samples(1);
  samples[0].trajectory = trajectory;
  return PieceBuilder(samples).MaxBytes();
}

Status CheckItemSize(const Trajectory& trajectory, uint64_t max_bytes, const WireLimits& limits) {
  const size_t columns = trajectory.num_columns();
  size_t slices = 0;
  // A quick upper bound, usually far below the limit: the headers and payloads of whole chunks and some more.
  uint64_t bytes = 128;
  uint64_t decoded = 0;
  bool has_strings = false;  // or empty rows
  trajectory.ForEachSlice([&](const SliceView& slice) {
    ++slices;
    bytes += 256 + 2 * static_cast<uint64_t>(slice.chunk->bytes());
    const uint64_t row_bytes = slice.chunk->header().fixed_row_bytes(slice.chunk_column);
    decoded += row_bytes * slice.length;
    has_strings |= row_bytes == 0;
  });
  if (columns > limits.max_columns) {
    return Status::ResourceExhausted("has " + Number(columns) + " columns, at most " +
                                     Number(limits.max_columns) + " are accepted");
  }
  if (slices > limits.max_slices) {
    return Status::ResourceExhausted("refers to " + Number(slices) + " runs of rows in chunks, at most " +
                                     Number(limits.max_slices) +
                                     " are accepted; make it of fewer rows, or write longer chunks");
  }
  if (has_strings) [[unlikely]] {
    decoded = trajectory.DecodedBytes(limits.max_decoded_item_bytes);
  }
  if (decoded > limits.max_decoded_item_bytes) [[unlikely]] {
    return Status::ResourceExhausted("takes more than " + Number(limits.max_decoded_item_bytes) +
                                     " bytes when it is decoded; make it of fewer rows, or raise "
                                     "max_decoded_item_bytes in the server's limits and of its clients");
  }
  if (bytes <= max_bytes) [[likely]] {
    return Status::Ok();
  }
  bytes = MaxSampleBytes(trajectory);
  if (bytes <= max_bytes) return Status::Ok();
  return Status::ResourceExhausted("takes about " + Number(bytes) + " bytes when it is sampled, at most " +
                                   Number(max_bytes) +
                                   " are accepted; make it of fewer rows, or raise max_item_bytes in the "
                                   "server's limits (at most 3/32 of its memory_limit) and "
                                   "max_response_bytes of its clients");
}

}  // namespace reverb::internal
