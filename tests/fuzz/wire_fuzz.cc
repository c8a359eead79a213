// wire_fuzz.cc — messages of the native protocol from a hostile peer.
//
// Input: a byte that names the message type (see the switch at the end), a byte that selects how the rest is
// cut into slices, the message. An insert stream is several messages, each after two bytes of length.
// Properties: nothing reads or writes out of bounds; an accepted message can be read, and is accepted again
// with the same data after re-encoding.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fuzz_target.h"
#include "transport/wire.h"
#include "transport/wire_calls.h"
#include "transport/wire_seal.h"
#include "transport/wire_testing.h"

namespace {

using namespace reverb;            // NOLINT
using namespace reverb::internal;  // NOLINT

// Small, for speed: larger claims must be rejected anyway.
constexpr WireLimits kLimits = {
    .max_message_bytes = 1 << 20,
    .max_chunk_bytes = 1 << 20,
    .max_items = 256,
    .max_chunks = 256,
    .max_slices = 4096,
    .max_window_bytes = 1 << 20,
    .max_window_chunks = 64,
    .chunk = {.max_chunk_raw_bytes = 1 << 20, .max_rows = 1 << 12, .max_columns = 64}};

// Reads rows unless there would be many: slices may refer to the same rows repeatedly.
std::string Data(const Trajectory& trajectory) {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < trajectory.num_columns(); ++c) {
    const ColumnView view = trajectory.column_view(c);
    bytes += static_cast<uint64_t>(trajectory.length(c)) * (view.row_bytes() + view.row_elements() + 1);
  }
  return bytes < (1 << 22) ? test::Contents(trajectory) : std::string();
}

InsertDecoder::ChunkFactory Factory() {
  return [](const ChunkHeader& header, uint8_t** payload) {
    return Chunk::Uninitialized(1, header, payload, kLimits.chunk);
  };
}

// Makes a separate copy for each slice, so that sanitizers detect a read past its end.
struct Cut {
  std::vector<std::vector<uint8_t>> owned;
  std::vector<ByteSlice> slices;

  Cut(std::span<const uint8_t> bytes, size_t step) {
    step = std::max<size_t>(step == 0 ? bytes.size() : step, 1);
    for (size_t i = 0; i < bytes.size(); i += step) {
      const auto part = bytes.subspan(i, std::min(step, bytes.size() - i));
      owned.emplace_back(part.begin(), part.end());
    }
    for (const auto& part : owned) slices.emplace_back(part);
  }
};

template <typename Decode, typename Encode>
void Check(ByteSlices slices, const Decode& decode, const Encode& encode) {
  const auto value = decode(slices, kLimits);
  if (!value.ok()) return;
  const WireMessage message = encode(*value);
  const auto again = decode(test::Slices(message), kLimits);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(encode(*again).Flatten() == message.Flatten());
}

// Pieces are laid out again when samples are encoded, which may exceed size limits.
template <typename Decode, typename Encode, typename Samples>
void CheckSamples(ByteSlices slices, const Decode& decode, const Encode& encode, Samples samples) {
  const auto value = decode(slices, kLimits);
  if (!value.ok()) return;
  uint64_t rows = 0;
  for (const Sample& sample : (*value).*samples) {
    for (uint32_t c = 0; c < sample.trajectory.num_columns(); ++c) {
      const ColumnView view = sample.trajectory.column_view(c);
      rows += static_cast<uint64_t>(sample.trajectory.length(c)) * (view.row_bytes() + 1);
    }
  }
  if (rows > (1 << 22)) return;
  const auto again = decode(test::Slices(encode(*value)), WireLimits());
  FUZZ_CHECK(again.ok());
  const std::vector<Sample>& want = (*value).*samples;
  const std::vector<Sample>& got = (*again).*samples;
  FUZZ_CHECK(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    FUZZ_CHECK(got[i].key == want[i].key);
    FUZZ_CHECK(Data(got[i].trajectory) == Data(want[i].trajectory));
  }
}

void CheckInserts(std::span<const uint8_t> bytes, size_t step) {
  InsertDecoder decoder(Factory(), kLimits);
  while (true) {
    const size_t size = bytes.size() < 2 ? bytes.size() : bytes[0] | bytes[1] << 8;
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), 2));
    const Cut cut(bytes.first(std::min(size, bytes.size())), step);
    const auto message = decoder.Decode(cut.slices);
    if (!message.ok()) return;
    for (const Item& item : message->items) {
      FUZZ_CHECK(!item.trajectory.empty());
      (void)Data(item.trajectory);
    }
    FUZZ_CHECK(decoder.window_chunks() <= kLimits.max_window_chunks);
    bytes = bytes.subspan(std::min(size, bytes.size()));
    if (bytes.empty()) return;
  }
}

void CheckParts(std::span<const uint8_t> bytes, size_t step) {
  SampleReplyDecoder decoder(kLimits);
  std::vector<Cut> kept;  // kept alive, as a transport does
  while (!bytes.empty()) {
    const size_t size = bytes.size() < 2 ? bytes.size() : bytes[0] | bytes[1] << 8;
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), 2));
    kept.emplace_back(bytes.first(std::min(size, bytes.size())), step);
    const auto reply = decoder.Decode(kept.back().slices, Buffer::CopyOf("keeper"));
    if (!reply.ok()) return;
    if (*reply) {
      for (const Sample& sample : (*reply)->samples) (void)Data(sample.trajectory);
      kept.clear();
    }
    bytes = bytes.subspan(std::min(size, bytes.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t type = data[0];
  const size_t step = data[1];
  const std::span<const uint8_t> bytes(data + 2, size - 2);
  if (type == 0) {
    CheckInserts(bytes, step);
    return 0;
  }
  if (type == 12) {
    CheckParts(bytes, step);
    return 0;
  }
  const Cut cut(bytes, step);
  switch (type) {
    case 1:
      CheckSamples(
          cut.slices,
          [](ByteSlices slices, const WireLimits& limits) { return DecodeSampleReply(slices, limits); },
          [](const SampleReply& reply) { return EncodeSampleReply(reply); }, &SampleReply::samples);
      break;
    case 2:
      CheckSamples(
          cut.slices,
          [](ByteSlices slices, const WireLimits& limits) { return DecodeInspectReply(slices, limits); },
          [](const InspectReply& reply) { return EncodeInspectReply(reply); }, &InspectReply::items);
      break;
    case 3:
      Check(cut.slices, DecodeInsertHello, EncodeInsertHello);
      break;
    case 4:
      Check(cut.slices, DecodeInsertReply, EncodeInsertReply);
      break;
    case 5:
      Check(cut.slices, DecodeSampleRequest, EncodeSampleRequest);
      break;
    case 6:
      Check(cut.slices, DecodeMutateRequest, EncodeMutateRequest);
      break;
    case 7:
      Check(cut.slices, DecodeServerInfo, EncodeServerInfo);
      break;
    case 8:
      Check(cut.slices, DecodeInspectRequest, EncodeInspectRequest);
      break;
    case 9:
      Check(cut.slices, DecodeSetRateLimiterRequest, EncodeSetRateLimiterRequest);
      break;
    case 10:
      Check(cut.slices, DecodeResetRequest, EncodeResetRequest);
      break;
    case 11:
      Check(cut.slices, DecodeCheckpointReply, EncodeCheckpointReply);
      break;
    case 14:
      Check(cut.slices, DecodeCreateTableRequest, EncodeCreateTableRequest);
      break;
    case 15:
      Check(cut.slices, DecodeChangeTableRequest, EncodeChangeTableRequest);
      break;
    case 16:
      Check(cut.slices, DecodeSettleLeasesRequest, EncodeSettleLeasesRequest);
      break;
    case 17:
      Check(cut.slices, DecodeLeaseOutcome, EncodeLeaseOutcome);
      break;
    case 18: {
      const auto make_chunk = [](const ChunkHeader& header, uint8_t** payload) {
        return Chunk::Uninitialized(1, header, payload, kLimits.chunk);
      };
      const auto request = DecodeRowsRequest(cut.slices, make_chunk, kLimits);
      if (!request.ok()) break;
      const std::string again = EncodeRowsRequest(*request).Flatten();
      const ByteSlice slice(reinterpret_cast<const uint8_t*>(again.data()), again.size());
      FUZZ_CHECK(DecodeRowsRequest({&slice, 1}, make_chunk).ok());
      break;
    }
    case 19: {
      const auto reply = DecodeRowsReply(cut.slices, kLimits);
      if (reply.ok()) FUZZ_CHECK(!EncodeRowsReply(*reply).Flatten().empty());
      break;
    }
    case 20:
      Check(cut.slices, DecodeCallRequest, EncodeCallRequest);
      break;
    case 21:
      Check(cut.slices, DecodeCallReply, EncodeCallReply);
      break;
    case 13: {
      std::vector<ByteSlice> slices = cut.slices;
      size_t left = 0;
      if (!Unseal(0, &slices).ok()) break;
      for (const ByteSlice& slice : slices) left += slice.size();
      FUZZ_CHECK(left + kSealBytes == bytes.size());
      break;
    }
    default:
      (void)DecodeEmpty(cut.slices, kLimits);
      break;
  }
  return 0;
}
