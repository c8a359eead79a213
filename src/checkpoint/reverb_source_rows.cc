// Reads the row tables of a checkpoint in Reverb's own format.
#include <map>
#include <utility>

#include "checkpoint/reverb_source.h"

namespace reverb::internal {
namespace {

Status DamagedRowTable(const std::string& path, const std::string& table, const std::string& what) {
  return Status::DataLoss("checkpoint \"" + path + "\" is damaged: row table \"" + table + "\": " + what)
      .WithDetail(Detail::kCorruptData);
}

}  // namespace

Status ReverbSource::ReadRowStates() {
  RecordReader records(fs_, path_, &manifest_.segments);
  for (const ManifestRowTable& table : manifest_.row_tables) {
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records.Read(table.state));
    Result<SavedRowTable> saved = DecodeRowTable(bytes);
    if (!saved.ok()) return DamagedRowTable(path_, table.name, std::string(saved.status().message()));
    if (saved->settings.name != table.name || saved->counts.rows < 0 ||
        static_cast<uint64_t>(saved->counts.rows) != table.rows) {
      return DamagedRowTable(path_, table.name, "its state belongs to another table");
    }
    server_.row_tables.push_back(*std::move(saved));
  }
  return Status::Ok();
}

Status ReverbSource::ForEachRow(const std::vector<bool>& wanted,
                                const std::function<Status(size_t row_table, PageRow&)>& visit,
                                const std::function<void(uint64_t)>& progress) const {
  RecordReader records(fs_, path_, &manifest_.segments);
  for (size_t t = 0; t < wanted.size(); ++t) {
    if (!wanted[t]) continue;
    const ManifestRowTable& table = manifest_.row_tables[t];
    uint64_t rows = 0;
    for (const RecordPlace& page : table.pages) {
      REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records.Read(page));
      Status sink;
      const Status status = DecodeRowPage(bytes, server_.row_tables[t], [&](PageRow& row) {
        ++rows;
        return sink = visit(t, row);
      });
      if (!sink.ok()) return sink;
      if (!status.ok()) return DamagedRowTable(path_, table.name, std::string(status.message()));
      progress(page.size);
    }
    if (rows != table.rows) {
      return DamagedRowTable(
          path_, table.name,
          "it should have " + std::to_string(table.rows) + " rows and has " + std::to_string(rows));
    }
  }
  return Status::Ok();
}

// --- One by one ---

class ReverbSource::RowsOfTable final : public RowCursor {
 public:
  RowsOfTable(const ReverbSource* source, size_t index)
      : source_(*source),
        table_(source->manifest_.row_tables[index]),
        saved_(source->server_.row_tables[index]),
        records_(source->fs_, source->path_, &source->manifest_.segments) {}

  Result<std::optional<SavedRow>> Next() override {
    while (next_ == rows_.size()) {
      if (page_ == table_.pages.size()) {
        if (read_ != table_.rows) {
          return DamagedRowTable(
              source_.path_, table_.name,
              "it should have " + std::to_string(table_.rows) + " rows and has " + std::to_string(read_));
        }
        return std::optional<SavedRow>();
      }
      REVERB_RETURN_IF_ERROR(ReadPage(table_.pages[page_++]));
    }
    PageRow& row = rows_[next_++];
    ++read_;
    for (size_t i = 0; i < row.chunks.size(); ++i) {
      REVERB_ASSIGN_OR_RETURN(row.row.parts[i].chunk, GetChunk(row.chunks[i]));
      const ChunkRef& chunk = row.row.parts[i].chunk;
      if (chunk->header().num_columns() != saved_.layouts[row.row.parts[i].layout].size() ||
          chunk->header().rows() != 1) {
        return DamagedRowTable(source_.path_, table_.name,
                               "row \"" + row.row.key + "\" has data that does not fit to its columns");
      }
    }
    return std::optional(std::move(row.row));
  }

 private:
  Status ReadPage(const RecordPlace& place) {
    rows_.clear();
    next_ = 0;
    REVERB_ASSIGN_OR_RETURN(const std::string_view bytes, records_.Read(place));
    const Status status = DecodeRowPage(bytes, saved_, [&](PageRow& row) {
      rows_.push_back(std::move(row));
      return Status::Ok();
    });
    return status.ok() ? status : DamagedRowTable(source_.path_, table_.name, std::string(status.message()));
  }

  Result<ChunkRef> GetChunk(const ChunkPlace& place) {
    auto mapped = segments_.find(place.segment);
    if (mapped == segments_.end()) {
      const std::optional<size_t> index = source_.FindSegment(place);
      if (!index) return source_.UnknownChunk(place);
      REVERB_ASSIGN_OR_RETURN(
          std::unique_ptr<MappedChunks> opened,
          MappedChunks::Open(source_.fs_, source_.path_, source_.manifest_.segments[*index]));
      mapped = segments_.emplace(place.segment, std::move(opened)).first;
    }
    return mapped->second->Get(place.ordinal);
  }

  const ReverbSource& source_;
  const ManifestRowTable& table_;
  const SavedRowTable& saved_;
  RecordReader records_;
  std::map<uint64_t, std::unique_ptr<MappedChunks>> segments_;
  size_t page_ = 0;
  std::vector<PageRow> rows_;  // of the page
  size_t next_ = 0;            // into rows_
  uint64_t read_ = 0;
};

std::unique_ptr<RowCursor> ReverbSource::OpenRows(size_t index) const {
  return std::make_unique<RowsOfTable>(this, index);
}

}  // namespace reverb::internal
