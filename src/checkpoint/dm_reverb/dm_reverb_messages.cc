#include "checkpoint/dm_reverb/dm_reverb_messages.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "checkpoint/dm_reverb/structured_value.h"
#include "tensor/proto_reader.h"

namespace reverb::internal {
namespace {

// The largest table supported here; dm-reverb has no bound.
constexpr int64_t kMaxTableSize = std::numeric_limits<int32_t>::max() - 1;

Status NotAMessage(const char* what) { return Status::DataLoss(std::string(what) + " is not a message"); }

// Reads an int32 that must not be negative.
Status ReadCount(ProtoReader* reader, const char* what, uint32_t* out) {
  int32_t value = 0;
  reader->ReadInt(&value);
  if (value < 0) return Status::DataLoss(std::string(what) + " is " + std::to_string(value));
  *out = static_cast<uint32_t>(value);
  return Status::Ok();
}

bool ReadBool(ProtoReader* reader) {
  bool value = false;
  reader->Read(&value);
  return value;
}

Result<int64_t> ParseTimestamp(std::string_view message) {
  int64_t seconds = 0;
  int32_t nanos = 0;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) reader.ReadInt(&seconds);
    if (reader.field() == 2) reader.ReadInt(&nanos);
  }
  int64_t result = 0;
  if (!reader.ok() || __builtin_mul_overflow(seconds, int64_t{1'000'000'000}, &result) ||
      __builtin_add_overflow(result, int64_t{nanos}, &result)) {
    return Status::DataLoss("its time of insertion is damaged");
  }
  return result;
}

Result<DmReverbSlice> ParseSlice(std::string_view message) {
  DmReverbSlice slice;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&slice.chunk_key);
        break;
      case 2:
        REVERB_RETURN_IF_ERROR(ReadCount(&reader, "the offset of a slice", &slice.offset));
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(ReadCount(&reader, "the length of a slice", &slice.length));
        break;
      case 4:
        REVERB_RETURN_IF_ERROR(ReadCount(&reader, "the tensor index of a slice", &slice.index));
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return NotAMessage("a slice");
  return slice;
}

Status ParseTrajectory(std::string_view message, DmReverbItem* item) {
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() != 1) continue;
    DmReverbItem::Column column;
    ProtoReader fields = reader.ReadMessage();
    while (fields.Next()) {
      if (fields.field() == 2) fields.Read(&column.squeeze);
      if (fields.field() != 1) continue;
      REVERB_ASSIGN_OR_RETURN(const DmReverbSlice slice, ParseSlice(fields.ReadView()));
      item->slices.push_back(slice);
    }
    if (!fields.ok()) return NotAMessage("a column of its trajectory");
    column.end_slice = static_cast<uint32_t>(item->slices.size());
    item->columns.push_back(column);
  }
  if (!reader.ok()) return NotAMessage("its trajectory");
  return Status::Ok();
}

Result<SelectorOptions> ParseSelector(std::string_view message, const char* role) {
  std::optional<SelectorOptions> options;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        if (ReadBool(&reader)) options = SelectorOptions::Fifo();
        break;
      case 2:
        if (ReadBool(&reader)) options = SelectorOptions::Uniform();
        break;
      case 3: {
        double exponent = 0;
        ProtoReader fields = reader.ReadMessage();
        while (fields.Next()) {
          if (fields.field() == 1) fields.Read(&exponent);
        }
        if (!fields.ok()) return NotAMessage("a selector");
        options = SelectorOptions::Prioritized(exponent);
        break;
      }
      case 4: {
        bool min_heap = false;
        ProtoReader fields = reader.ReadMessage();
        while (fields.Next()) {
          if (fields.field() == 1) fields.Read(&min_heap);
        }
        if (!fields.ok()) return NotAMessage("a selector");
        options = min_heap ? SelectorOptions::MinHeap() : SelectorOptions::MaxHeap();
        break;
      }
      case 6:
        if (ReadBool(&reader)) options = SelectorOptions::Lifo();
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return NotAMessage("a selector");
  if (!options) return Status::DataLoss(std::string("its ") + role + " is of an unknown kind");
  return *options;
}

Status ParseRateLimiter(std::string_view message, RateLimiterOptions* options,
                        RateLimiterCounters* counters) {
  *options = {
      .samples_per_insert = 0, .min_size_to_sample = 0, .min_diff = 0, .max_diff = 0};  // as proto3 has it
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 2:
        reader.Read(&options->samples_per_insert);
        break;
      case 3:
        reader.Read(&options->min_diff);
        break;
      case 4:
        reader.Read(&options->max_diff);
        break;
      case 5:
        reader.ReadInt(&options->min_size_to_sample);
        break;
      case 6:
        reader.ReadInt(&counters->samples);
        break;
      case 7:
        reader.ReadInt(&counters->inserts);
        break;
      case 8:
        reader.ReadInt(&counters->deletes);
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return NotAMessage("its rate limiter");
  return Status::Ok();
}

}  // namespace

Result<DmReverbItem> ParseDmReverbItem(std::string_view message) {
  DmReverbItem item;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        reader.Read(&item.key);
        break;
      case 2:
        item.table = reader.ReadView();
        break;
      case 3:
        reader.ReadVarints([&](uint64_t key) { item.chunk_keys.push_back(key); });
        break;
      case 4: {
        ProtoReader range = reader.ReadMessage();
        while (range.Next()) {
          if (range.field() == 1)
            REVERB_RETURN_IF_ERROR(ReadCount(&range, "the offset of its rows", &item.offset));
          if (range.field() == 2)
            REVERB_RETURN_IF_ERROR(ReadCount(&range, "the number of its rows", &item.length));
        }
        if (!range.ok()) return NotAMessage("the range of its rows");
        break;
      }
      case 5:
        reader.Read(&item.priority);
        break;
      case 6:
        reader.ReadInt(&item.times_sampled);
        break;
      case 7: {
        REVERB_ASSIGN_OR_RETURN(item.inserted_at, ParseTimestamp(reader.ReadView()));
        break;
      }
      case 8:
        REVERB_RETURN_IF_ERROR(ParseTrajectory(reader.ReadView(), &item));
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return Status::DataLoss("an item is not a message");
  const std::string name = "item " + std::to_string(item.key) + ": ";
  if (!item.columns.empty() && !item.chunk_keys.empty()) {
    return Status::DataLoss(name + "it refers to its data in both the old and the new format");
  }
  if (item.columns.empty() && item.chunk_keys.empty()) return Status::DataLoss(name + "it has no data");
  if (item.times_sampled < 0) {
    return Status::DataLoss(name + "sampled " + std::to_string(item.times_sampled) + " times");
  }
  return item;
}

Result<DmReverbTableRecord> ParseDmReverbTable(std::string_view message) {
  DmReverbTableRecord record;
  TableOptions& options = record.options;
  options.max_size = 0;
  std::string_view sampler;
  std::string_view remover;
  std::optional<std::string_view> signature;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        options.name = reader.ReadView();
        break;
      case 2:
        record.items.push_back(reader.ReadView());
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(ParseRateLimiter(reader.ReadView(), &options.rate_limiter, &record.counters));
        break;
      case 4:
        sampler = reader.ReadView();
        break;
      case 5:
        remover = reader.ReadView();
        break;
      case 6:
        reader.ReadInt(&options.max_size);
        options.max_size = std::min(options.max_size, kMaxTableSize);
        break;
      case 7:
        reader.ReadInt(&options.max_times_sampled);
        break;
      case 8:
        reader.ReadInt(&record.num_deleted_episodes);
        break;
      case 9:
        signature = reader.ReadView();
        break;
      case 10:
        reader.ReadInt(&record.num_unique_samples);
        break;
      default:
        break;
    }
  }
  if (!reader.ok()) return Status::DataLoss("a table is not a message");
  const auto in_table = [&](const Status& status) {
    return status.Prefixed("table \"" + options.name + "\"");
  };
  Result<SelectorOptions> selector = ParseSelector(sampler, "sampler");
  if (!selector.ok()) return in_table(selector.status());
  options.sampler = *selector;
  selector = ParseSelector(remover, "remover");
  if (!selector.ok()) return in_table(selector.status());
  options.remover = *selector;
  if (signature) {
    Result<Signature> decoded = DecodeStructuredValue(*signature);
    if (!decoded.ok()) return in_table(decoded.status());
    options.signature = *std::move(decoded);
  }
  const RateLimiterCounters& counters = record.counters;
  if (counters.inserts < 0 || counters.samples < 0 || counters.deletes < 0) {
    return in_table(Status::DataLoss("its rate limiter has a negative counter"));
  }
  if (const Status status = options.Validate(); !status.ok()) {
    return Status::DataLoss("invalid table settings: " + std::string(status.message()));
  }
  return record;
}

}  // namespace reverb::internal
