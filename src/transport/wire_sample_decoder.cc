// Decodes the responses that carry samples.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/checksum.h"
#include "transport/wire.h"
#include "transport/wire_internal.h"
#include "transport/wire_seal.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kResponse = "SampleResponse";
constexpr size_t kMinScatteredBytes = 1024;

// Returns whether the piece consists of raw rows without checksums.
bool LacksChecksums(const ColumnHeader& column) {
  return column.codec == Codec::kRaw && column.dtype != DType::kString &&
         std::ranges::all_of(column.blocks, [](const BlockInfo& block) { return block.checksum == 0; });
}

}  // namespace

Status ParsePiece(ProtoReader reader, uint64_t number, const WireLimits& limits, const Buffer& keeper,
                  RowChecksums row_checksums, ChunkRef* piece) {
  ChunkHeader header;
  header.columns.resize(1);
  ProtoReader payload;
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseColumnHeader(reader.ReadMessage(), &header.columns[0]));
        break;
      case 2:
        reader.Read(&header.rows);
        break;
      case 15:
        payload = reader.ReadMessage();
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status("Piece"));
  if (payload.remaining() > limits.max_chunk_bytes) {
    return Status::ResourceExhausted(Number(payload.remaining()) + " bytes, at most " +
                                     Number(limits.max_chunk_bytes) + " are accepted");
  }
  if (PayloadSize(header) != payload.remaining()) {
    return Status::DataLoss("its header describes " + Number(PayloadSize(header)) +
                            " payload bytes, but there are " + Number(payload.remaining()))
        .WithDetail(Detail::kCorruptData);
  }
  header.last_step = int64_t{header.rows} - 1;
  const ColumnHeader& column = header.columns[0];
  const bool is_verified = row_checksums == RowChecksums::kRequired || !LacksChecksums(column);
  // Rows without checksums are in memory of this host: the batcher copies them, and prefetches.
  const size_t least = is_verified ? kLeaveBytes : kMinScatteredBytes;
  if (keeper.has_owner() && payload.remaining() >= least && column.codec == Codec::kRaw &&
      column.dtype != DType::kString) {
    auto scattered = std::make_unique<const ScatteredBytes>(keeper, payload.RestInParts());
    const ScatteredBytes* const bytes = scattered.get();
    REVERB_ASSIGN_OR_RETURN(*piece, Chunk::Scattered(number, header, std::move(scattered), limits.chunk));
    return is_verified ? VerifyChecksums((*piece)->header().column(0), *bytes) : Status::Ok();
  }
  uint8_t* room = nullptr;
  REVERB_ASSIGN_OR_RETURN(*piece, Chunk::Uninitialized(number, header, &room, limits.chunk));
  payload.CopyRest(room);
  return is_verified ? VerifyChecksums((*piece)->header().column(0), (*piece)->payload()) : Status::Ok();
}

namespace {

Status ParseSampleInfo(ProtoReader reader, Sample* sample) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.ReadFixed(&sample->key);
        break;
      case 2:
        reader.Read(&sample->priority);
        break;
      case 3:
        reader.Read(&sample->probability);
        break;
      case 4:
        reader.ReadCount(&sample->table_size);
        break;
      case 5:
        reader.ReadCount(&sample->times_sampled);
        break;
      case 6:
        reader.Read(&sample->rate_limited);
        break;
      case 7:
        reader.ReadSint(&sample->inserted_at);
        break;
      case 20:
        reader.ReadFixed(&sample->lease_id);
        break;
    }
  }
  return reader.status("SampleInfo");
}

// Reads SampleInfos: values of all samples, whose number is that of the keys.
class InfosParser {
 public:
  explicit InfosParser(const WireLimits& limits) : limits_(limits) {}

  Status Parse(ProtoReader reader, std::vector<Sample>* samples) {
    while (reader.Next()) {
      switch (reader.field()) {
        case 1:
          if (samples->empty()) samples->reserve(std::min(reader.num_fixed64s(), limits_.max_items));
          reader.ReadFixed64s([&](uint64_t key) {
            if (samples->size() >= limits_.max_items) {
              is_too_many_ = true;
              return;
            }
            samples->emplace_back().key = key;
          });
          if (is_too_many_) return TooMany("SampleInfos", "keys", limits_.max_items);
          break;
        case 2:
          Fixed(&reader, samples,
                [](uint64_t bits, Sample* sample) { sample->priority = std::bit_cast<double>(bits); });
          break;
        case 3:
          Fixed(&reader, samples,
                [](uint64_t bits, Sample* sample) { sample->probability = std::bit_cast<double>(bits); });
          break;
        case 4:
          Counts(&reader, samples, INT64_MAX,
                 [](uint64_t size, Sample* sample) { sample->table_size = static_cast<int64_t>(size); });
          break;
        case 5:
          Counts(&reader, samples, INT32_MAX,
                 [](uint64_t times, Sample* sample) { sample->times_sampled = static_cast<int32_t>(times); });
          break;
        case 6:
          Counts(&reader, samples, 1,
                 [](uint64_t value, Sample* sample) { sample->rate_limited = value != 0; });
          break;
        case 7:
          Fixed(&reader, samples,
                [](uint64_t nanos, Sample* sample) { sample->inserted_at = static_cast<int64_t>(nanos); });
          break;
        case 20:
          Fixed(&reader, samples, [](uint64_t id, Sample* sample) { sample->lease_id = id; });
          break;
      }
      if (bad_field_ != 0) {
        return Status::DataLoss("message SampleInfos: field " + Number(bad_field_) +
                                " has neither one value " + "nor one for each of the " +
                                Number(samples->size()) + " samples, or one that is too large");
      }
    }
    return reader.status("SampleInfos");
  }

 private:
  // Sets a value of all samples: there is one for each, or one for all. The keys come first.
  template <typename Set>
  void Fixed(ProtoReader* reader, std::vector<Sample>* samples, Set set) {
    size_t count = 0;
    uint64_t last = 0;
    reader->ReadFixed64s([&](uint64_t value) {
      if (count < samples->size()) set(value, &(*samples)[count]);
      last = value;
      ++count;
    });
    Finish(*reader, samples, count, last, set);
  }
  template <typename Set>
  void Counts(ProtoReader* reader, std::vector<Sample>* samples, uint64_t max, Set set) {
    size_t count = 0;
    uint64_t last = 0;
    bool fits = true;
    reader->ReadVarints([&](uint64_t value) {
      fits &= value <= max;
      if (count < samples->size() && fits) set(value, &(*samples)[count]);
      last = value;
      ++count;
    });
    if (!fits) bad_field_ = reader->field();
    Finish(*reader, samples, count, last, set);
  }
  template <typename Set>
  void Finish(const ProtoReader& reader, std::vector<Sample>* samples, size_t count, uint64_t last, Set set) {
    if (bad_field_ != 0 || count == samples->size() || count == 0) return;
    if (count != 1) {
      bad_field_ = reader.field();
      return;
    }
    for (Sample& sample : *samples) set(last, &sample);
  }

  const WireLimits& limits_;
  bool is_too_many_ = false;
  uint32_t bad_field_ = 0;
};

// Appends the sample's own columns to `*columns`.
Status ParseSample(ProtoReader reader, const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                   const WireLimits& limits, Sample* sample, ColumnSpecs* columns) {
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseSampleInfo(reader.ReadMessage(), sample));
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ParseNextColumn(&reader, "Sample", resolve, slices_left, limits, columns));
        break;
    }
  }
  return reader.status("Sample");
}

// Collects the samples and pieces of a message, and joins them at its end.
class SampleParser {
 public:
  SampleParser(std::string_view message, const WireLimits& limits, RowChecksums row_checksums,
               Buffer keeper = {})
      : message_(message), limits_(limits), row_checksums_(row_checksums), keeper_(std::move(keeper)) {}

  Status AddSample(ProtoReader reader) {
    if (samples_.size() >= limits_.max_items) return TooMany(message_, "samples", limits_.max_items);
    samples_.push_back(reader);
    return Status::Ok();
  }
  // Adds what describes all samples together.
  Status AddInfos(ProtoReader reader) { return InfosParser(limits_).Parse(reader, &described_); }
  // Adds the next Column of the message, which all samples without their own columns share.
  Status AddSharedColumn(ProtoReader* message) {
    const ProtoReader reader = message->ReadMessage();
    if (shared_.size() >= limits_.max_columns) return TooMany(message_, "columns", limits_.max_columns);
    shared_.push_back(reader);
    return Status::Ok();
  }
  bool has_shared_columns() const { return !shared_.empty(); }
  // Adds the next Piece of the message.
  Status AddPiece(ProtoReader* message) {
    const ProtoReader reader = message->ReadMessage();
    if (!message->ok()) return Status::Ok();  // the message reports it
    // Every slice may need a piece of its own.
    if (pieces_.size() >= limits_.max_slices) return TooMany(message_, "pieces", limits_.max_slices);
    const size_t number = pieces_.size();
    const Status status =
        ParsePiece(reader, number, limits_, keeper_, row_checksums_, &pieces_.emplace_back());
    if (!status.ok()) return status.Prefixed("piece " + Number(number));
    const PackedChunkHeader header = pieces_.back()->header();
    // The length of a string takes four bytes, the decoded element at least kMinStringBytes.
    const uint64_t factor = header.column(0).dtype == DType::kString ? 1 + kMinStringBytes / 4 : 1;
    max_piece_bytes_ = std::max(max_piece_bytes_, factor * header.raw_size());
    return status;
  }

  Status Finish(std::vector<Sample>* samples) {
    const std::function<Chunk*(uint64_t)> resolve = [&](uint64_t number) {
      return number < pieces_.size() ? pieces_[number].get() : nullptr;
    };
    if (!described_.empty() && (!samples_.empty() || shared_.empty())) {
      return Status::DataLoss("message " + std::string(message_) +
                              ": samples that are described together need shared columns, and come alone");
    }
    size_t slices_left = limits_.max_slices;
    Trajectory shared;
    REVERB_RETURN_IF_ERROR(ParseSharedColumns(resolve, &slices_left, &shared));
    if (!described_.empty()) {
      for (size_t i = 0; i < described_.size(); ++i) {
        described_[i].trajectory = shared.InSeries(static_cast<uint32_t>(i));
      }
      *samples = std::move(described_);
      return CheckDecodedBytes(*samples, limits_.max_slices - slices_left);
    }
    samples->resize(samples_.size());
    ColumnSpecs columns;
    for (size_t i = 0; i < samples_.size(); ++i) {
      Sample& sample = (*samples)[i];
      columns.Clear();
      const Status status = ParseSample(samples_[i], resolve, &slices_left, limits_, &sample, &columns);
      if (!status.ok()) return status.Prefixed("sample " + Number(i));
      if (columns.empty() && !shared.empty()) {
        sample.trajectory = shared.InSeries(static_cast<uint32_t>(i));
        continue;
      }
      Result<Trajectory> trajectory = Trajectory::Create(columns.specs());
      if (!trajectory.ok()) return trajectory.status().Prefixed("sample " + Number(i));
      sample.trajectory = *std::move(trajectory);
    }
    return CheckDecodedBytes(*samples, limits_.max_slices - slices_left);
  }

 private:
  Status CheckDecodedBytes(const std::vector<Sample>& samples, size_t num_slices) const {
    // Most replies are far below the limits, whatever rows they name.
    const uint64_t least = std::min(limits_.max_decoded_item_bytes, limits_.max_decoded_reply_bytes);
    if (uint64_t most = 0; !__builtin_mul_overflow(max_piece_bytes_, num_slices, &most) && most <= least) {
      return Status::Ok();
    }
    uint64_t all = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      const uint64_t bytes = samples[i].trajectory.DecodedBytes(limits_.max_decoded_item_bytes);
      if (bytes > limits_.max_decoded_item_bytes) {
        return Status::ResourceExhausted("sample " + Number(i) + ", of item " + Number(samples[i].key) +
                                         ", takes more than " + Number(limits_.max_decoded_item_bytes) +
                                         " bytes when it is decoded; raise the client's "
                                         "max_decoded_item_bytes, or delete the item");
      }
      if (__builtin_add_overflow(all, bytes, &all) || all > limits_.max_decoded_reply_bytes) {
        return Status::ResourceExhausted("message " + std::string(message_) + ": its " +
                                         Number(samples.size()) + " samples take more than " +
                                         Number(limits_.max_decoded_reply_bytes) +
                                         " bytes when they are decoded; raise the client's "
                                         "max_decoded_reply_bytes, or make smaller items");
      }
    }
    return Status::Ok();
  }
  Status ParseSharedColumns(const std::function<Chunk*(uint64_t)>& resolve, size_t* slices_left,
                            Trajectory* first) const {
    if (shared_.empty()) return Status::Ok();
    // They count as columns of every sample.
    const size_t num_samples = samples_.size() + described_.size();
    if (shared_.size() * num_samples > *slices_left) {
      return Status::ResourceExhausted(std::string(message_) + ": " + Number(num_samples) + " samples of " +
                                       Number(shared_.size()) + " columns: more than the " +
                                       Number(limits_.max_slices) + " slices that are accepted in a message");
    }
    std::vector<ColumnSpec> columns(shared_.size());
    for (size_t c = 0; c < shared_.size(); ++c) {
      const Status status = ParseColumn(shared_[c], resolve, slices_left, &columns[c]);
      if (!status.ok()) return status.Prefixed("shared column " + Number(c));
    }
    *slices_left -= std::min(*slices_left, shared_.size() * num_samples);
    Result<Trajectory> series = Trajectory::CreateSeries(columns, static_cast<uint32_t>(num_samples));
    if (!series.ok()) return series.status().Prefixed("shared columns");
    *first = *std::move(series);
    return Status::Ok();
  }

  const std::string_view message_;
  const WireLimits& limits_;
  const RowChecksums row_checksums_;
  const Buffer keeper_;
  std::vector<ProtoReader> samples_;
  std::vector<Sample> described_;  // all together, without data
  std::vector<ProtoReader> shared_;
  std::vector<ChunkRef> pieces_;
  uint64_t max_piece_bytes_ = 0;  // of one piece, when it is decoded
};

}  // namespace

Result<SampleReply> DecodeSampleReply(ByteSlices slices, const WireLimits& limits, const Buffer& keeper,
                                      RowChecksums row_checksums) {
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kResponse, limits));
  SampleReply reply;
  SampleParser parser(kResponse, limits, row_checksums, keeper);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        REVERB_RETURN_IF_ERROR(ParseWelcome(reader.ReadMessage(), limits, &reply.welcome.emplace()));
        break;
      case 2:
        reader.Read(&reply.request_id);
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(parser.AddSample(reader.ReadMessage()));
        break;
      case 4:
        REVERB_RETURN_IF_ERROR(ParseStatus(reader.ReadMessage(), limits, &reply.end.emplace()));
        break;
      case 5:
        REVERB_RETURN_IF_ERROR(parser.AddSharedColumn(&reader));
        break;
      case 8:
        REVERB_RETURN_IF_ERROR(parser.AddInfos(reader.ReadMessage()));
        break;
      case 25:
        REVERB_RETURN_IF_ERROR(ParseTableMass(reader.ReadMessage(), limits, &reply.mass.emplace()));
        break;
      case kResponseBytesField:
      case kPartField:
        return Status::InvalidArgument("message SampleResponse: a part of a response has no other fields");
      case 15:
        REVERB_RETURN_IF_ERROR(parser.AddPiece(&reader));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kResponse));
  reply.shared_columns = parser.has_shared_columns();
  REVERB_RETURN_IF_ERROR(parser.Finish(&reply.samples));
  REVERB_RETURN_IF_ERROR(keeper.CheckValid());
  return reply;
}

Result<InspectReply> DecodeInspectReply(ByteSlices slices, const WireLimits& limits,
                                        RowChecksums row_checksums) {
  constexpr std::string_view kName = "InspectResponse";
  ProtoReader reader(slices);
  REVERB_RETURN_IF_ERROR(CheckMessageSize(reader, kName, limits));
  InspectReply reply;
  SampleParser parser(kName, limits, row_checksums);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&reply.next_cursor);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(parser.AddSample(reader.ReadMessage()));
        break;
      case 15:
        REVERB_RETURN_IF_ERROR(parser.AddPiece(&reader));
        break;
    }
  }
  REVERB_RETURN_IF_ERROR(reader.status(kName));
  REVERB_RETURN_IF_ERROR(parser.Finish(&reply.items));
  return reply;
}

// --- Responses in parts ---

Result<std::optional<SampleReply>> SampleReplyDecoder::Decode(ByteSlices slices, const Buffer& keeper) {
  ProtoReader reader(slices);
  const bool is_part =
      reader.Next() && (reader.field() == kResponseBytesField || reader.field() == kPartField);
  if (!is_part) {
    if (is_in_parts()) {
      return Status::InvalidArgument(
          "message SampleResponse: arrived before the last part of the previous response");
    }
    REVERB_ASSIGN_OR_RETURN(SampleReply reply, DecodeSampleReply(slices, limits_, keeper, row_checksums_));
    return std::optional(std::move(reply));
  }
  uint64_t response_bytes = 0;
  ProtoReader part;
  do {
    switch (reader.field()) {
      case kResponseBytesField:
        reader.Read(&response_bytes);
        break;
      case kPartField:
        part = reader.ReadMessage();
        break;
    }
  } while (reader.Next());
  REVERB_RETURN_IF_ERROR(reader.status(kResponse));
  REVERB_ASSIGN_OR_RETURN(const bool is_complete, AddPart(response_bytes, part, keeper));
  if (!is_complete) return std::optional<SampleReply>();
  struct Keeper final : BufferOwner {
    explicit Keeper(std::vector<Buffer> kept) : buffers(std::move(kept)) {}
    Status CheckValid() const override {
      for (const Buffer& buffer : buffers) REVERB_RETURN_IF_ERROR(buffer.CheckValid());
      return Status::Ok();
    }
    const std::vector<Buffer> buffers;
  };
  std::vector<ByteSlice> parts = std::exchange(parts_, {});
  const Buffer all(new Keeper(std::exchange(keepers_, {})), nullptr, 0);
  received_bytes_ = 0;
  REVERB_RETURN_IF_ERROR(Unseal(0, &parts));
  REVERB_ASSIGN_OR_RETURN(SampleReply reply, DecodeSampleReply(parts, limits_, all, row_checksums_));
  return std::optional(std::move(reply));
}

Result<bool> SampleReplyDecoder::AddPart(uint64_t response_bytes, ProtoReader part, const Buffer& keeper) {
  const auto wrong = [&](const std::string& text) {
    return Status::InvalidArgument("message SampleResponse: a part of " + Number(part.remaining()) +
                                   " bytes of a response of " + Number(response_bytes) + ": " + text);
  };
  if (response_bytes > limits_.max_message_bytes) {
    return Status::ResourceExhausted("a response has " + Number(response_bytes) + " bytes, at most " +
                                     Number(limits_.max_message_bytes) +
                                     " are accepted; raise the client's max_response_bytes");
  }
  if (is_in_parts() && response_bytes != response_bytes_) {
    return wrong("the part before it is of one of " + Number(response_bytes_));
  }
  response_bytes_ = response_bytes;
  const uint64_t left = response_bytes_ - received_bytes_;
  if (part.remaining() > left) return wrong("only " + Number(left) + " bytes are missing");
  if (part.remaining() == 0 || (part.remaining() < left && part.remaining() < kMinPartBytes)) {
    return wrong("all parts but the last have at least " + Number(kMinPartBytes) + " bytes");
  }
  received_bytes_ += part.remaining();
  for (const ByteSlice& slice : part.RestInParts()) parts_.push_back(slice);
  keepers_.push_back(keeper);
  return received_bytes_ == response_bytes_;
}

}  // namespace reverb::internal
