#include "checkpoint/dm_reverb/dm_reverb_messages.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "checkpoint/dm_reverb/proto_reader.h"
#include "checkpoint/dm_reverb/structured_value.h"

namespace reverb::internal {
namespace {

// The largest table there is here; dm-reverb knows no bound.
constexpr int64_t kMaxTableSize = std::numeric_limits<int32_t>::max() - 1;

Status NoMessage(const char* what) { return Status::DataLoss(std::string(what) + " is no message"); }

// An int32 that counts something.
Status ReadCount(ProtoReader* reader, const char* what, uint32_t* out) {
  const int32_t value = reader->AsInt32();
  if (value < 0) return Status::DataLoss(std::string(what) + " is " + std::to_string(value));
  *out = static_cast<uint32_t>(value);
  return Status::Ok();
}

Result<int64_t> ParseTimestamp(std::string_view message) {
  int64_t seconds = 0;
  int32_t nanos = 0;
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) seconds = reader.AsInt64();
    if (reader.field() == 2) nanos = reader.AsInt32();
  }
  int64_t result = 0;
  if (reader.damaged() || __builtin_mul_overflow(seconds, int64_t{1'000'000'000}, &result) ||
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
        slice.chunk_key = reader.AsUint64();
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
  if (reader.damaged()) return NoMessage("a slice");
  return slice;
}

Status ParseTrajectory(std::string_view message, DmReverbItem* item) {
  ProtoReader reader(message);
  while (reader.Next()) {
    if (reader.field() != 1) continue;
    DmReverbItem::Column column;
    ProtoReader fields(reader.AsBytes());
    while (fields.Next()) {
      if (fields.field() == 2) column.squeeze = fields.AsBool();
      if (fields.field() != 1) continue;
      REVERB_ASSIGN_OR_RETURN(const DmReverbSlice slice, ParseSlice(fields.AsBytes()));
      item->slices.push_back(slice);
    }
    if (fields.damaged()) return NoMessage("a column of its trajectory");
    column.end_slice = static_cast<uint32_t>(item->slices.size());
    item->columns.push_back(column);
  }
  if (reader.damaged()) return NoMessage("its trajectory");
  return Status::Ok();
}

Result<SelectorOptions> ParseSelector(std::string_view message, const char* role) {
  std::optional<SelectorOptions> options;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        if (reader.AsBool()) options = SelectorOptions::Fifo();
        break;
      case 2:
        if (reader.AsBool()) options = SelectorOptions::Uniform();
        break;
      case 3: {
        double exponent = 0;
        ProtoReader fields(reader.AsBytes());
        while (fields.Next()) {
          if (fields.field() == 1) exponent = fields.AsDouble();
        }
        if (fields.damaged()) return NoMessage("a selector");
        options = SelectorOptions::Prioritized(exponent);
        break;
      }
      case 4: {
        bool min_heap = false;
        ProtoReader fields(reader.AsBytes());
        while (fields.Next()) {
          if (fields.field() == 1) min_heap = fields.AsBool();
        }
        if (fields.damaged()) return NoMessage("a selector");
        options = min_heap ? SelectorOptions::MinHeap() : SelectorOptions::MaxHeap();
        break;
      }
      case 6:
        if (reader.AsBool()) options = SelectorOptions::Lifo();
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return NoMessage("a selector");
  if (!options) return Status::DataLoss(std::string("its ") + role + " is of no kind that is known here");
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
        options->samples_per_insert = reader.AsDouble();
        break;
      case 3:
        options->min_diff = reader.AsDouble();
        break;
      case 4:
        options->max_diff = reader.AsDouble();
        break;
      case 5:
        options->min_size_to_sample = reader.AsInt64();
        break;
      case 6:
        counters->samples = reader.AsInt64();
        break;
      case 7:
        counters->inserts = reader.AsInt64();
        break;
      case 8:
        counters->deletes = reader.AsInt64();
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return NoMessage("its rate limiter");
  return Status::Ok();
}

}  // namespace

Result<DmReverbItem> ParseDmReverbItem(std::string_view message) {
  DmReverbItem item;
  ProtoReader reader(message);
  while (reader.Next()) {
    switch (reader.field()) {
      case 1:
        item.key = reader.AsUint64();
        break;
      case 2:
        item.table = reader.AsBytes();
        break;
      case 3:
        reader.ForEachUint64([&](uint64_t key) { item.chunk_keys.push_back(key); });
        break;
      case 4: {
        ProtoReader range(reader.AsBytes());
        while (range.Next()) {
          if (range.field() == 1)
            REVERB_RETURN_IF_ERROR(ReadCount(&range, "the offset of its rows", &item.offset));
          if (range.field() == 2)
            REVERB_RETURN_IF_ERROR(ReadCount(&range, "the number of its rows", &item.length));
        }
        if (range.damaged()) return NoMessage("the range of its rows");
        break;
      }
      case 5:
        item.priority = reader.AsDouble();
        break;
      case 6:
        item.times_sampled = reader.AsInt32();
        break;
      case 7: {
        REVERB_ASSIGN_OR_RETURN(item.inserted_at, ParseTimestamp(reader.AsBytes()));
        break;
      }
      case 8:
        REVERB_RETURN_IF_ERROR(ParseTrajectory(reader.AsBytes(), &item));
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return Status::DataLoss("an item that is no message");
  const std::string name = "item " + std::to_string(item.key) + ": ";
  if (!item.columns.empty() && !item.chunk_keys.empty()) {
    return Status::DataLoss(name + "its data is named both in the old and in the new way");
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
        options.name = reader.AsBytes();
        break;
      case 2:
        record.items.push_back(reader.AsBytes());
        break;
      case 3:
        REVERB_RETURN_IF_ERROR(ParseRateLimiter(reader.AsBytes(), &options.rate_limiter, &record.counters));
        break;
      case 4:
        sampler = reader.AsBytes();
        break;
      case 5:
        remover = reader.AsBytes();
        break;
      case 6:
        options.max_size = std::min(reader.AsInt64(), kMaxTableSize);
        break;
      case 7:
        options.max_times_sampled = reader.AsInt32();
        break;
      case 8:
        record.num_deleted_episodes = reader.AsInt64();
        break;
      case 9:
        signature = reader.AsBytes();
        break;
      case 10:
        record.num_unique_samples = reader.AsInt64();
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return Status::DataLoss("a table that is no message");
  const auto in_table = [&](const Status& status) {
    return Status(status.code(), "table \"" + options.name + "\": " + std::string(status.message()),
                  status.detail());
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
    return in_table(Status::DataLoss("its rate limiter counted less than nothing"));
  }
  if (const Status status = options.Validate(); !status.ok()) {
    return Status::DataLoss("settings that no table can have: " + std::string(status.message()));
  }
  return record;
}

}  // namespace reverb::internal
