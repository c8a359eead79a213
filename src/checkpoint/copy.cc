#include "checkpoint/copy.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/segment_reader.h"

namespace reverb::internal {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// Returns the last part of a path.
std::string NameOf(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

Status CopyFile(FileSystem* fs, const RandomAccessFile& from, const std::string& to,
                const std::function<void(uint64_t)>& advance) {
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                          fs->NewWritableFile(to, FileSystem::OpenMode::kTruncate));
  std::vector<uint8_t> piece(std::min<uint64_t>(from.size(), kPieceBytes));
  for (uint64_t offset = 0; offset < from.size();) {
    REVERB_ASSIGN_OR_RETURN(const size_t read, from.Read(offset, piece));
    if (read == 0) return Status::DataLoss("a file became shorter while it was copied to \"" + to + "\"");
    REVERB_RETURN_IF_ERROR(file->Append(std::span<const uint8_t>(piece).first(read)));
    offset += read;
    advance(read);
  }
  REVERB_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

// Removes a folder of two levels, as far as possible.
void RemoveCopy(FileSystem* fs, const std::string& path) {
  const Result<std::vector<std::string>> folders = fs->ListDir(path);
  if (!folders.ok()) return;
  for (const std::string& folder : *folders) {
    const std::string below = JoinPath(path, folder);
    if (const Result<std::vector<std::string>> files = fs->ListDir(below); files.ok()) {
      for (const std::string& file : *files) (void)fs->RemoveFile(JoinPath(below, file));
    }
    (void)fs->RemoveDir(below);
  }
  (void)fs->RemoveDir(path);
}

}  // namespace

Result<std::string> CopyCheckpointFiles(FileSystem* fs, const std::string& from, const std::string& to,
                                        const std::function<Status(const std::string& path)>& verify,
                                        const CheckpointProgressCallback& progress) {
  REVERB_ASSIGN_OR_RETURN(const bool exists, fs->FileExists(to));
  if (exists) {
    return Status::AlreadyExists("\"" + to + "\" exists; a checkpoint is copied to a new folder");
  }
  // The name may be a time that only the original folder had; without one, that of the manifest.
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> manifest_file,
                          fs->NewRandomAccessFile(JoinPath(from, kManifestName)));
  REVERB_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(fs, from));
  const std::string given = NameOf(from);
  const std::string name = CheckpointName(ParseCheckpointName(given).value_or(manifest.created_nanos));
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  CheckpointProgress done{.bytes_done = 0, .bytes_total = manifest_file->size()};
  for (const SavedSegment& segment : manifest.segments) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenSegment(fs, from, segment));
    done.bytes_total += file->size();
    files.push_back(std::move(file));
  }
  const auto advance = [&](uint64_t bytes) {
    done.bytes_done += bytes;
    if (progress) progress(done);
  };

  std::string target = to;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const std::string parent = ParentPath(target);
  REVERB_RETURN_IF_ERROR(CreateDurableDir(fs, parent));
  const std::string temp = target + ".copying-" + std::to_string(EntropySeed());
  std::string made = temp;
  const auto copy = [&]() -> Status {
    const std::string segments = JoinPath(temp, kSegmentsName);
    const std::string checkpoint = JoinPath(temp, name);
    REVERB_RETURN_IF_ERROR(fs->CreateDir(temp, FileSystem::Parents::kMustExist));
    REVERB_RETURN_IF_ERROR(fs->CreateDir(segments, FileSystem::Parents::kMustExist));
    REVERB_RETURN_IF_ERROR(fs->CreateDir(checkpoint, FileSystem::Parents::kMustExist));
    for (size_t i = 0; i < files.size(); ++i) {
      const SavedSegment& segment = manifest.segments[i];
      const std::string path = JoinPath(segments, SegmentFileName(segment.number, segment.kind));
      REVERB_RETURN_IF_ERROR(CopyFile(fs, *files[i], path, advance));
    }
    REVERB_RETURN_IF_ERROR(CopyFile(fs, *manifest_file, JoinPath(checkpoint, kManifestName), advance));
    for (const std::string& folder : {segments, checkpoint, temp}) {
      REVERB_RETURN_IF_ERROR(fs->SyncDir(folder));
    }
    REVERB_RETURN_IF_ERROR(verify(checkpoint));
    REVERB_RETURN_IF_ERROR(fs->Rename(temp, target));
    made = target;
    return fs->SyncDir(parent);
  };
  if (Status status = copy(); !status.ok()) {
    RemoveCopy(fs, made);
    return status;
  }
  return JoinPath(target, name);
}

}  // namespace reverb::internal
