#include "checkpoint/format.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "checkpoint/field_reader.h"
#include "checkpoint/row_format.h"
#include "reverb/signature.h"
#include "reverb/structured_value.h"
#include "tensor/byte_io.h"
#include "tensor/checksum.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kManifestMagic = "RVBMANI\n";
// A manifest names pages and segments, no items: far below this.
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

// Flags of an item in a page.
constexpr uint8_t kSingle = 1;  // one slice of column 0 of one chunk
constexpr uint8_t kSqueeze = 2;
constexpr uint8_t kSampled = 4;
constexpr uint8_t kTouched = 8;

uint64_t ChecksumOf(std::string_view bytes) {
  return Checksum(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

Status LaterRelease(const std::string& path, uint64_t version, uint64_t known) {
  return Status::FailedPrecondition("\"" + path + "\" is of format version " + std::to_string(version) +
                                    "; this release reads version " + std::to_string(known) +
                                    ": use the release that wrote it, or a later one");
}

uint64_t GetFixed64(std::string_view bytes, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void PutSelector(std::string* out, const SelectorOptions& options) {
  PutByte(out, static_cast<uint8_t>(options.kind));
  PutDouble(out, options.priority_exponent);
  PutByte(out, options.seed.has_value());
  if (options.seed) PutFixed64(out, *options.seed);
  PutString(out, options.custom_name);
}

SelectorOptions TakeSelector(FieldReader& in) {
  SelectorOptions options;
  options.kind = static_cast<SelectorOptions::Kind>(in.Byte());
  options.priority_exponent = in.Double();
  if (in.Byte() != 0) options.seed = in.Fixed64();
  options.custom_name = in.String();
  return options;
}

void PutPlace(std::string* out, const RecordPlace& place) {
  PutVarint(out, place.segment);
  PutVarint(out, place.offset);
  PutVarint(out, place.size);
}

RecordPlace TakePlace(FieldReader& in) {
  RecordPlace place;
  place.segment = in.Varint();
  place.offset = in.Varint();
  place.size = in.Varint();
  return place;
}

void PutTable(std::string* out, const ManifestTable& table) {
  const SavedTable& saved = table.saved;
  PutString(out, saved.name);
  PutSelector(out, saved.sampler);
  PutSelector(out, saved.remover);
  PutSigned(out, saved.max_size);
  PutSigned(out, saved.max_times_sampled);
  PutDouble(out, saved.rate_limiter.samples_per_insert);
  PutSigned(out, saved.rate_limiter.min_size_to_sample);
  PutDouble(out, saved.rate_limiter.min_diff);
  PutDouble(out, saved.rate_limiter.max_diff);
  PutString(out, saved.signature);
  PutByte(out, static_cast<uint8_t>(saved.layout));
  PutSigned(out, saved.size);
  const SavedTableState& state = saved.state;
  for (const int64_t count : {state.counters.inserts, state.counters.samples, state.counters.deletes,
                              state.counts.num_deleted_episodes, state.counts.num_unique_samples,
                              state.counts.evictions, state.counts.expirations, state.counts.explicit_deletes,
                              state.counts.updates, state.counts.unknown_keys}) {
    PutSigned(out, count);
  }
  PutVarint(out, state.sequence);
  PutVarint(out, state.num_slots);
  PutPlace(out, table.state);
  PutVarint(out, table.pages.size());
  for (const RecordPlace& page : table.pages) PutPlace(out, page);
  PutSigned(out, saved.max_age_nanos);
  PutSigned(out, state.counts.aged_out);
  PutByte(out, saved.created_by_client);
  PutSigned(out, state.counters.uncounted_inserts);
  PutSigned(out, saved.max_bytes);
}

// Version 1 kept user data beside a signature without bounds. The Python package stored the same signature
// there with bounds, as dm-reverb encodes it; other user data is dropped.
std::string WithBoundsOfVersion1(std::string signature, std::string_view user_data) {
  if (signature.empty() || user_data.empty()) return signature;
  const Result<Signature> plain = DecodeSignature(signature);
  const Result<Signature> with_bounds = DecodeStructuredValue(user_data);
  if (!plain.ok() || !with_bounds.ok() || plain->ToString() != with_bounds->ToString()) return signature;
  return EncodeSignature(*with_bounds);
}

ManifestTable TakeTable(FieldReader& in, uint32_t version) {
  ManifestTable table;
  SavedTable& saved = table.saved;
  saved.name = in.String();
  saved.sampler = TakeSelector(in);
  saved.remover = TakeSelector(in);
  saved.max_size = in.Signed();
  saved.max_times_sampled = static_cast<int32_t>(in.Signed());
  saved.rate_limiter.samples_per_insert = in.Double();
  saved.rate_limiter.min_size_to_sample = in.Signed();
  saved.rate_limiter.min_diff = in.Double();
  saved.rate_limiter.max_diff = in.Double();
  saved.signature = in.String();
  if (version == 1) saved.signature = WithBoundsOfVersion1(std::move(saved.signature), in.String());
  saved.knows_layout_and_age = version >= 3;
  saved.knows_max_bytes = version >= 6;
  if (version >= 3) saved.layout = static_cast<LayoutPolicy>(in.Byte());
  saved.size = in.Signed();
  SavedTableState& state = saved.state;
  for (int64_t* count : {&state.counters.inserts, &state.counters.samples, &state.counters.deletes,
                         &state.counts.num_deleted_episodes, &state.counts.num_unique_samples,
                         &state.counts.evictions, &state.counts.expirations, &state.counts.explicit_deletes,
                         &state.counts.updates, &state.counts.unknown_keys}) {
    *count = in.Signed();
  }
  state.sequence = in.Varint();
  state.num_slots = in.Varint();
  table.state = TakePlace(in);
  const size_t pages = in.Count(3);
  table.pages.reserve(pages);
  for (size_t i = 0; i < pages && in.ok(); ++i) table.pages.push_back(TakePlace(in));
  if (version >= 3) {
    saved.max_age_nanos = in.Signed();
    state.counts.aged_out = in.Signed();
    saved.created_by_client = in.Byte() != 0;
    state.counters.uncounted_inserts = in.Signed();
  }
  if (version >= 6) saved.max_bytes = in.Signed();
  return table;
}

// Checks what the checksum cannot: that the parts are consistent.
Status CheckManifest(const Manifest& manifest, const std::string& path) {
  // A damaged page may be read in full before the damage is found, so its size is bounded.
  constexpr uint64_t kMaxSlotsPerPage = uint64_t{1} << 16;
  if (manifest.slots_per_page < 1 || manifest.slots_per_page > kMaxSlotsPerPage) {
    return DamagedFile(path, "a page has " + std::to_string(manifest.slots_per_page) + " slots");
  }
  for (const ManifestTable& table : manifest.tables) {
    const SavedTable& saved = table.saved;
    const uint64_t slots = saved.state.num_slots;
    if (slots > UINT32_MAX ||
        (slots + manifest.slots_per_page - 1) / manifest.slots_per_page != table.pages.size() ||
        saved.size < 0 || static_cast<uint64_t>(saved.size) > slots) {
      return DamagedFile(path, "table \"" + saved.name + "\" has " + std::to_string(saved.size) +
                                   " items in " + std::to_string(slots) + " slots on " +
                                   std::to_string(table.pages.size()) + " pages");
    }
    if (static_cast<int>(saved.layout) >= kNumLayoutPolicies) {
      return DamagedFile(path, "table \"" + saved.name + "\" has the unknown layout policy " +
                                   std::to_string(static_cast<int>(saved.layout)));
    }
    if (saved.max_age_nanos < 0) {
      return DamagedFile(path, "table \"" + saved.name + "\" has a negative max_age");
    }
    if (saved.max_bytes < 0) {
      return DamagedFile(path, "table \"" + saved.name + "\" has a negative max_bytes");
    }
    if (!saved.signature.empty()) {
      if (Result<Signature> signature = DecodeSignature(saved.signature); !signature.ok()) {
        return DamagedFile(path,
                           "table \"" + saved.name + "\": " + std::string(signature.status().message()));
      }
    }
  }
  for (const ManifestRowTable& table : manifest.row_tables) {
    // A wrong number cannot allocate much memory.
    uint64_t bytes = 0;
    for (const RecordPlace& page : table.pages) {
      if (__builtin_add_overflow(bytes, page.size, &bytes)) bytes = 0;
    }
    if (table.rows > bytes / kMinRowBytes) {
      return DamagedFile(path, "row table \"" + table.name + "\" has " + std::to_string(table.rows) +
                                   " rows in " + std::to_string(bytes) + " bytes");
    }
  }
  return Status::Ok();
}

}  // namespace

Status DamagedFile(const std::string& path, const std::string& what) {
  return Status::DataLoss("\"" + path + "\" is damaged: " + what).WithDetail(Detail::kCorruptData);
}

// --- Segments ---

Status CheckSegmentHeader(std::string_view bytes, uint64_t number, SegmentKind kind,
                          const std::string& path) {
  if (bytes.size() != kSegmentHeaderBytes || !bytes.starts_with(kSegmentMagic) ||
      GetFixed64(bytes, 24) != ChecksumOf(bytes.substr(0, 24))) {
    return DamagedFile(path, "it does not start with a valid segment header");
  }
  if (bytes == EncodeSegmentHeader(number, kind)) return Status::Ok();
  uint32_t version = 0;
  std::memcpy(&version, bytes.data() + kSegmentMagic.size(), sizeof version);
  if (version != kSegmentVersion) return LaterRelease(path, version, kSegmentVersion);
  return DamagedFile(path, "its header belongs to a different segment");
}

// --- The manifest ---

std::string EncodeManifest(const Manifest& manifest) {
  std::string out(kManifestMagic);
  PutFixed32(&out, kManifestVersion);
  PutSigned(&out, manifest.created_nanos);
  PutVarint(&out, manifest.slots_per_page);
  PutVarint(&out, manifest.segments.size());
  for (const SavedSegment& segment : manifest.segments) {
    PutVarint(&out, segment.number);
    PutByte(&out, static_cast<uint8_t>(segment.kind));
    PutVarint(&out, segment.file_bytes);
    PutVarint(&out, segment.count);
    PutVarint(&out, segment.live_count);
    PutVarint(&out, segment.live_bytes);
  }
  PutVarint(&out, manifest.tables.size());
  for (const ManifestTable& table : manifest.tables) PutTable(&out, table);
  PutVarint(&out, manifest.writers.size());
  for (const SavedWriter& writer : manifest.writers) {
    out.append(reinterpret_cast<const char*>(writer.id.data()), writer.id.size());
    PutVarint(&out, writer.applied_through);
    PutVarint(&out, writer.applied.size());
    for (const auto& [table, number] : writer.applied) {
      PutString(&out, table);
      PutVarint(&out, number);
    }
  }
  PutVarint(&out, manifest.shard);
  PutVarint(&out, manifest.row_tables.size());
  for (const ManifestRowTable& table : manifest.row_tables) {
    PutString(&out, table.name);
    PutVarint(&out, table.rows);
    PutPlace(&out, table.state);
    PutVarint(&out, table.pages.size());
    for (const RecordPlace& page : table.pages) PutPlace(&out, page);
  }
  PutFixed64(&out, ChecksumOf(out));
  return out;
}

Result<Manifest> DecodeManifest(std::string_view bytes, const std::string& path) {
  const size_t head = kManifestMagic.size() + 4;
  if (bytes.size() < head + 8 || !bytes.starts_with(kManifestMagic)) {
    return DamagedFile(path, "it does not start with the header of a manifest");
  }
  if (GetFixed64(bytes, bytes.size() - 8) != ChecksumOf(bytes.substr(0, bytes.size() - 8))) {
    return DamagedFile(path, "its checksum is wrong");
  }
  uint32_t version = 0;
  std::memcpy(&version, bytes.data() + kManifestMagic.size(), sizeof version);
  if (version < 1 || version > kManifestVersion) return LaterRelease(path, version, kManifestVersion);

  FieldReader in(bytes.substr(head, bytes.size() - head - 8));
  Manifest manifest;
  manifest.version = version;
  manifest.created_nanos = in.Signed();
  manifest.slots_per_page = in.Varint();
  const size_t segments = in.Count(6);
  for (size_t i = 0; i < segments && in.ok(); ++i) {
    SavedSegment segment;
    segment.number = in.Varint();
    segment.kind = static_cast<SegmentKind>(in.Byte());
    segment.file_bytes = in.Varint();
    segment.count = in.Varint();
    segment.live_count = in.Varint();
    segment.live_bytes = in.Varint();
    manifest.segments.push_back(segment);
  }
  const size_t tables = in.Count(32);
  for (size_t i = 0; i < tables && in.ok(); ++i) manifest.tables.push_back(TakeTable(in, version));
  const size_t writers = in.Count(18);
  for (size_t i = 0; i < writers && in.ok(); ++i) {
    SavedWriter writer;
    for (uint8_t& byte : writer.id) byte = in.Byte();
    writer.applied_through = in.Varint();
    const size_t applied = in.Count(2);
    for (size_t k = 0; k < applied && in.ok(); ++k) {
      std::string table(in.String());
      const uint64_t number = in.Varint();
      writer.applied.emplace_back(std::move(table), number);
    }
    manifest.writers.push_back(std::move(writer));
  }
  const uint64_t shard = version >= 4 ? in.Varint() : 0;
  if (shard > 0xFFFF) return DamagedFile(path, "it has shard " + std::to_string(shard));
  manifest.shard = static_cast<uint32_t>(shard);
  const size_t row_tables = version >= 5 ? in.Count(6) : 0;
  for (size_t i = 0; i < row_tables && in.ok(); ++i) {
    ManifestRowTable& table = manifest.row_tables.emplace_back();
    table.name = in.String();
    table.rows = in.Varint();
    table.state = TakePlace(in);
    const size_t pages = in.Count(3);
    table.pages.reserve(pages);
    for (size_t k = 0; k < pages && in.ok(); ++k) table.pages.push_back(TakePlace(in));
  }
  if (!in.at_end()) return DamagedFile(path, "unexpected bytes follow its last field");
  REVERB_RETURN_IF_ERROR(CheckManifest(manifest, path));
  return manifest;
}

Result<Manifest> ReadManifest(FileSystem* fs, const std::string& path) {
  const std::string file = JoinPath(path, kManifestName);
  REVERB_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(fs, file, kMaxManifestBytes));
  return DecodeManifest(bytes, file);
}

// --- Records of page files ---

void EncodeTableState(const SavedTableState& state, std::string* out) {
  PutString(out, state.sampler_state);
  PutString(out, state.remover_state);
  PutVarint(out, state.extension_states.size());
  for (const auto& [name, bytes] : state.extension_states) {
    PutString(out, name);
    PutString(out, bytes);
  }
  PutVarint(out, state.free_slots.size());
  for (const Slot slot : state.free_slots) PutVarint(out, slot);
  if (state.structure) PutString(out, *state.structure);
}

Status DecodeTableState(std::string_view bytes, SavedTableState* state) {
  FieldReader in(bytes);
  state->sampler_state = in.String();
  state->remover_state = in.String();
  const size_t extensions = in.Count(2);
  for (size_t i = 0; i < extensions && in.ok(); ++i) {
    std::string name(in.String());
    std::string saved(in.String());
    state->extension_states.emplace_back(std::move(name), std::move(saved));
  }
  const size_t free_slots = in.Count(1);
  state->free_slots.reserve(free_slots);
  for (size_t i = 0; i < free_slots && in.ok(); ++i) state->free_slots.push_back(in.Varint32());
  if (in.ok() && !in.at_end()) state->structure = in.String();
  if (!in.at_end()) return Status::DataLoss("a table's state has unexpected bytes after its last field");
  return Status::Ok();
}

void PageEncoder::Begin(uint64_t first_slot) {
  size_ = 0;
  next_slot_ = first_slot;
}

void PageEncoder::Add(uint64_t slot, const SlotRecord& record, std::span<const ChunkPlace> places) {
  constexpr size_t kMaxItemBytes = 128;  // without its chunks and slices
  constexpr size_t kMaxChunkRefBytes = 20;
  constexpr size_t kMaxSliceBytes = 20;
  const Trajectory trajectory = Trajectory::Share(record.trajectory);
  const uint32_t columns = trajectory.num_columns();
  const SliceView first = trajectory.slice(0, 0);
  const bool is_single = columns == 1 && trajectory.num_slices(0) == 1 && first.chunk_column == 0;

  Reserve(kMaxItemBytes + kMaxChunkRefBytes * places.size());
  Varint(slot - next_slot_);
  next_slot_ = slot + 1;
  Byte(static_cast<uint8_t>((is_single ? kSingle : 0) | (is_single && trajectory.squeeze(0) ? kSqueeze : 0) |
                            (record.times_sampled != 0 ? kSampled : 0) |
                            (record.touched != record.inserted ? kTouched : 0)));
  Fixed64(record.key);
  Fixed64(std::bit_cast<uint64_t>(record.priority));
  Fixed64(static_cast<uint64_t>(record.inserted_at));
  Varint(record.inserted);
  if (record.touched != record.inserted) Varint(record.touched - record.inserted);
  if (record.times_sampled != 0) Varint(static_cast<uint64_t>(record.times_sampled));
  if (!is_single) Varint(places.size());
  for (const ChunkPlace& place : places) {
    Varint(place.segment);
    Varint(place.ordinal);
  }
  if (is_single) {
    Varint(first.offset);
    Varint(first.length);
    return;
  }
  Varint(columns);
  for (uint32_t c = 0; c < columns; ++c) {
    const uint32_t slices = trajectory.num_slices(c);
    Reserve(kMaxItemBytes + kMaxSliceBytes * slices);
    Varint(uint64_t{slices} << 1 | (trajectory.squeeze(c) ? 1 : 0));
    for (uint32_t s = 0; s < slices; ++s) {
      const SliceView slice = trajectory.slice(c, s);
      Varint(trajectory.chunk_index(c, s));
      Varint(slice.chunk_column);
      Varint(slice.offset);
      Varint(slice.length);
    }
  }
}

Status DecodePage(std::string_view bytes, uint64_t first_slot, uint64_t end_slot,
                  const std::function<Status(PageItem&)>& visit) {
  FieldReader in(bytes);
  PageItem page_item;
  uint64_t next = first_slot;
  while (in.ok() && !in.at_end()) {
    const uint64_t gap = in.Varint();
    const uint8_t flags = in.Byte();
    SavedItem& item = page_item.item;
    item = SavedItem();
    item.key = in.Fixed64();
    item.priority = in.Double();
    item.inserted_at = static_cast<int64_t>(in.Fixed64());
    item.inserted = in.Varint();
    item.touched = item.inserted + ((flags & kTouched) != 0 ? in.Varint() : 0);
    const uint64_t times_sampled = (flags & kSampled) != 0 ? in.Varint() : 0;
    if (!in.ok() || gap >= end_slot - next || times_sampled > INT32_MAX) break;
    item.times_sampled = static_cast<int32_t>(times_sampled);
    item.slot = static_cast<Slot>(next + gap);
    next += gap + 1;

    const bool is_single = (flags & kSingle) != 0;
    page_item.chunks.resize(is_single ? 1 : in.Count(2));
    for (ChunkPlace& place : page_item.chunks) {
      place.segment = in.Varint();
      place.ordinal = in.Varint32();
    }
    page_item.num_columns = is_single ? 1 : in.Count(5);
    if (page_item.columns.size() < page_item.num_columns) page_item.columns.resize(page_item.num_columns);
    bool fits = true;
    for (size_t c = 0; c < page_item.num_columns && in.ok(); ++c) {
      PageColumn& column = page_item.columns[c];
      const uint64_t slices_and_squeeze =
          is_single ? (uint64_t{1} << 1 | ((flags & kSqueeze) != 0 ? 1 : 0)) : in.Varint();
      column.squeeze = (slices_and_squeeze & 1) != 0;
      // Each slice takes at least four bytes, or two of the only one.
      constexpr uint64_t kMinSliceBytes = 4;
      if (!is_single && slices_and_squeeze >> 1 > in.remaining() / kMinSliceBytes) fits = false;
      if (!fits) break;
      column.slices.resize(slices_and_squeeze >> 1);
      for (PageSlice& slice : column.slices) {
        slice.chunk = is_single ? 0 : in.Varint32();
        slice.chunk_column = is_single ? 0 : in.Varint32();
        slice.offset = in.Varint32();
        slice.length = in.Varint32();
        fits = fits && slice.chunk < page_item.chunks.size();
      }
    }
    if (!fits || !in.ok()) {
      return Status::DataLoss("item " + std::to_string(item.key) + " of a page has invalid fields");
    }
    REVERB_RETURN_IF_ERROR(visit(page_item));
  }
  if (!in.at_end()) return Status::DataLoss("a page has unexpected bytes after its last item");
  return Status::Ok();
}

}  // namespace reverb::internal
