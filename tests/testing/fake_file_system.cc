#include "testing/fake_file_system.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/random.h"

namespace reverb::test {

using internal::Buffer;
using internal::FileError;
using internal::MutexLock;
using internal::Random;

namespace {

using Bytes = std::vector<uint8_t>;

// A write or truncation that was flushed but is not yet durable.
struct PendingWrite {
  bool truncates = false;  // otherwise appends `bytes`
  Bytes bytes;
};

void Apply(const PendingWrite& write, Bytes* content) {
  if (write.truncates) content->clear();
  content->insert(content->end(), write.bytes.begin(), write.bytes.end());
}

// Returns false for a path that contains "..".
bool Split(const std::string& path, std::vector<std::string>* parts) {
  size_t start = 0;
  while (start < path.size()) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, end - start);
    if (part == "..") return false;
    if (!part.empty() && part != ".") parts->push_back(part);
    start = end + 1;
  }
  return true;
}

}  // namespace

struct FakeFileSystem::Node {
  explicit Node(bool is_dir) : is_dir(is_dir) {}

  const bool is_dir;
  // Directories: the entries as programs see them, and the entries that survive a crash.
  Names names;
  Names durable_names;
  // Files: the bytes as programs see them, the bytes as of the last Sync(), and the changes in between.
  Bytes content;
  Bytes durable_content;
  std::vector<PendingWrite> pending;
};

// ---------------------------------------------------------------------------------------
// Files

class FakeFileSystem::Writer final : public internal::WritableFile {
 public:
  Writer(FakeFileSystem* fs, NodePtr node, std::string path, int64_t crashes)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), crashes_(crashes) {}

  using WritableFile::Append;
  Status Append(std::span<const uint8_t> bytes) override {
    MutexLock lock(&fs_->mu_);
    REVERB_RETURN_IF_ERROR(Begin("append to"));
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return Status::Ok();
  }

  Status Flush() override {
    MutexLock lock(&fs_->mu_);
    REVERB_RETURN_IF_ERROR(Begin("flush"));
    return WriteBuffer();
  }

  Status Sync() override {
    MutexLock lock(&fs_->mu_);
    REVERB_RETURN_IF_ERROR(Begin("sync"));
    REVERB_RETURN_IF_ERROR(WriteBuffer());
    node_->durable_content = node_->content;
    node_->pending.clear();
    return Status::Ok();
  }

  Status Close() override {
    MutexLock lock(&fs_->mu_);
    Status status = Begin("close");
    if (status.ok()) status = WriteBuffer();
    closed_ = true;
    return status;
  }

 private:
  // Counts the operation. After one failure, all further operations fail.
  Status Begin(const char* operation) REQUIRES(fs_->mu_) {
    const int error = fs_->Count(Kind::kWrite);
    if (!failed_.ok()) return failed_;
    if (closed_ || crashes_ != fs_->crashes_) {
      return Status::FailedPrecondition(
          std::string("cannot ") + operation + " \"" + path_ +
          (closed_ ? "\": it was closed" : "\": it was open when the power went"));
    }
    if (error == 0) return Status::Ok();
    if (std::string_view(operation) != "append to") {
      buffer_.resize(buffer_.size() / 2);  // simulates a short write
      static_cast<void>(WriteBuffer());
    }
    return failed_ = FileError(operation, path_, error);
  }

  Status WriteBuffer() REQUIRES(fs_->mu_) {
    if (buffer_.empty()) return Status::Ok();
    const uint64_t used = fs_->UsedBytes();
    const uint64_t left = used < fs_->capacity_ ? fs_->capacity_ - used : 0;
    const bool is_full = buffer_.size() > left;
    if (is_full) buffer_.resize(left);
    PendingWrite write{.truncates = false, .bytes = std::exchange(buffer_, {})};
    Apply(write, &node_->content);
    node_->pending.push_back(std::move(write));
    return is_full ? failed_ = FileError("write", path_, ENOSPC) : Status::Ok();
  }

  FakeFileSystem* const fs_;
  const NodePtr node_;
  const std::string path_;
  const int64_t crashes_;  // number of crashes before the file was opened
  Bytes buffer_;
  Status failed_;
  bool closed_ = false;
};

class FakeFileSystem::Reader final : public internal::RandomAccessFile {
 public:
  Reader(FakeFileSystem* fs, NodePtr node, std::string path, int64_t crashes, uint64_t size)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), crashes_(crashes), size_(size) {}

  Result<size_t> Read(uint64_t offset, std::span<uint8_t> out) const override {
    MutexLock lock(&fs_->mu_);
    if (const int error = fs_->Count(Kind::kRead)) return FileError("read", path_, error);
    if (crashes_ != fs_->crashes_) {
      return Status::FailedPrecondition("cannot read \"" + path_ + "\": it was open when the power went");
    }
    const Bytes& content = node_->content;
    if (offset >= content.size()) return size_t{0};
    const size_t n = std::min<uint64_t>(out.size(), content.size() - offset);
    std::copy_n(content.begin() + static_cast<ptrdiff_t>(offset), n, out.begin());
    return n;
  }
  uint64_t size() const override { return size_; }

 private:
  FakeFileSystem* const fs_;
  const NodePtr node_;
  const std::string path_;
  const int64_t crashes_;
  const uint64_t size_;
};

class FakeFileSystem::Blocks final : public internal::BlockFile {
 public:
  Blocks(FakeFileSystem* fs, NodePtr node, std::string path)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)) {}

  Status Write(uint64_t offset, std::span<const uint8_t> bytes) override {
    MutexLock lock(&fs_->mu_);
    const int error = fs_->Count(Kind::kWrite);
    // A failing write changes half of the bytes.
    if (error != 0) bytes = bytes.first(bytes.size() / 2);
    if (offset % kBlockBytes != 0 || offset + bytes.size() > node_->content.size()) {
      return FileError("write", path_, EINVAL);
    }
    std::ranges::copy(bytes, node_->content.begin() + static_cast<ptrdiff_t>(offset));
    return error == 0 ? Status::Ok() : FileError("write", path_, error);
  }
  Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    MutexLock lock(&fs_->mu_);
    if (const int error = fs_->Count(Kind::kRead)) return FileError("read", path_, error);
    if (offset % kBlockBytes != 0 || out.size() % kBlockBytes != 0) return FileError("read", path_, EINVAL);
    if (offset + out.size() > node_->content.size()) {
      return Status::DataLoss("cannot read \"" + path_ + "\": it ends before");
    }
    std::copy_n(node_->content.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return Status::Ok();
  }
  Status Truncate(uint64_t size) override {
    MutexLock lock(&fs_->mu_);
    if (const int error = fs_->Count(Kind::kWrite)) return FileError("truncate", path_, error);
    node_->content.resize(size);
    return Status::Ok();
  }
  const std::string& path() const override { return path_; }

 private:
  FakeFileSystem* const fs_;
  const NodePtr node_;
  const std::string path_;
};

// ---------------------------------------------------------------------------------------
// Power loss and failures

FakeFileSystem::FakeFileSystem() : root_(std::make_shared<Node>(true)) {}
FakeFileSystem::~FakeFileSystem() = default;

void FakeFileSystem::Crash(uint64_t seed) {
  MutexLock lock(&mu_);
  root_ = RootAfterCrash(seed);
  changes_.clear();
  ++crashes_;
}

std::unique_ptr<FakeFileSystem> FakeFileSystem::AfterCrash(uint64_t seed) const {
  auto after = std::make_unique<FakeFileSystem>();
  MutexLock lock(&mu_);
  MutexLock after_lock(&after->mu_);
  after->root_ = RootAfterCrash(seed);
  after->capacity_ = capacity_;
  return after;
}

FakeFileSystem::NodePtr FakeFileSystem::RootAfterCrash(uint64_t seed) const {
  Random random(seed);
  // One crash in four loses everything, one in four nothing; the others lose a random part.
  enum { kNone, kAll, kSome } survive = kNone;
  if (seed != kLoseAll) {
    const uint64_t draw = random.Below(4);
    survive = draw == 0 ? kNone : draw == 1 ? kAll : kSome;
  }

  // Entries of directories that changed since their last SyncDir().
  std::map<const Node*, Names> changed;
  const auto names_of = [&](const NodePtr& dir) -> Names& {
    return changed.try_emplace(dir.get(), dir->durable_names).first->second;
  };
  for (const NameChange& change : changes_) {
    if (survive == kNone || (survive == kSome && random.Below(2) == 0)) continue;
    if (change.from_dir) names_of(change.from_dir).erase(change.from);
    if (change.to_dir) names_of(change.to_dir)[change.to] = change.node;
  }

  const auto content_after = [&](const Node& file) {
    Bytes content = file.durable_content;
    const size_t n = file.pending.size();
    const size_t whole = survive == kNone ? 0 : survive == kAll ? n : random.Below(n + 1);
    for (size_t i = 0; i < whole; ++i) Apply(file.pending[i], &content);
    if (survive == kSome && whole < n && random.Below(2) == 0) {
      PendingWrite torn = file.pending[whole];
      const size_t size = torn.bytes.size();
      torn.bytes.resize(random.Below(size + 1));
      // The length may become durable before the bytes do.
      if (random.Below(3) == 0) torn.bytes.resize(size, 0);
      Apply(torn, &content);
    }
    return content;
  };

  // A file with two names, as a half-done rename leaves it, remains one file.
  std::map<const Node*, NodePtr> copies;
  const std::function<NodePtr(const NodePtr&)> copy = [&](const NodePtr& node) -> NodePtr {
    NodePtr& made = copies[node.get()];
    if (made) return made;
    made = std::make_shared<Node>(node->is_dir);
    if (node->is_dir) {
      const auto it = changed.find(node.get());
      for (const auto& [name, child] : it == changed.end() ? node->durable_names : it->second) {
        made->names[name] = copy(child);
      }
      made->durable_names = made->names;
    } else {
      made->content = content_after(*node);
      made->durable_content = made->content;
    }
    return made;
  };
  return copy(root_);
}

void FakeFileSystem::Inject(const Fault& fault) {
  MutexLock lock(&mu_);
  fault_ = fault;
}

void FakeFileSystem::ClearFault() {
  MutexLock lock(&mu_);
  fault_.reset();
}

int64_t FakeFileSystem::num_operations(Kind kind) const {
  MutexLock lock(&mu_);
  return kind == Kind::kWrite ? writes_ : kind == Kind::kRead ? reads_ : writes_ + reads_;
}

void FakeFileSystem::set_capacity(uint64_t bytes) {
  MutexLock lock(&mu_);
  capacity_ = bytes;
}

int FakeFileSystem::Count(Kind kind) {
  ++(kind == Kind::kWrite ? writes_ : reads_);
  if (!fault_ || (fault_->kind != Kind::kAny && fault_->kind != kind)) return 0;
  if (fault_->after > 0) {
    --fault_->after;
    return 0;
  }
  const int error = fault_->error;
  if (fault_->every > 0) {
    fault_->after = fault_->every - 1;
  } else if (!fault_->for_ever) {
    fault_.reset();
  }
  return error;
}

// ---------------------------------------------------------------------------------------
// Names

int FakeFileSystem::Find(const std::string& path, Place* place) const {
  std::vector<std::string> parts;
  if (path.empty()) return ENOENT;
  if (!Split(path, &parts)) return EINVAL;
  *place = {nullptr, "", root_};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!place->node) return ENOENT;
    if (!place->node->is_dir) return ENOTDIR;
    const auto found = place->node->names.find(parts[i]);
    NodePtr next = found == place->node->names.end() ? nullptr : found->second;
    *place = {std::move(place->node), parts[i], std::move(next)};
  }
  return 0;
}

void FakeFileSystem::Change(NameChange change) {
  if (change.from_dir) change.from_dir->names.erase(change.from);
  if (change.to_dir) change.to_dir->names[change.to] = change.node;
  changes_.push_back(std::move(change));
}

uint64_t FakeFileSystem::UsedBytes() const {
  std::set<const Node*> seen;
  uint64_t bytes = 0;
  const std::function<void(const Node&)> visit = [&](const Node& node) {
    if (!seen.insert(&node).second) return;
    bytes += node.content.size();
    for (const auto& [name, child] : node.names) visit(*child);
  };
  visit(*root_);
  return bytes;
}

Result<std::unique_ptr<internal::WritableFile>> FakeFileSystem::NewWritableFile(const std::string& path,
                                                                                OpenMode mode) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0 && place.node && place.node->is_dir) error = EISDIR;
  if (error != 0) return FileError("open", path, error);
  if (!place.node) {
    place.node = std::make_shared<Node>(false);
    Change({.node = place.node, .from_dir = nullptr, .from = "", .to_dir = place.dir, .to = place.name});
  } else if (mode == OpenMode::kTruncate) {
    place.node->content.clear();
    place.node->pending.push_back({.truncates = true, .bytes = {}});
  }
  return std::unique_ptr<internal::WritableFile>(new Writer(this, place.node, path, crashes_));
}

Result<std::unique_ptr<internal::FileLock>> FakeFileSystem::LockFile(const std::string& path,
                                                                     std::chrono::nanoseconds) {
  REVERB_RETURN_IF_ERROR(NewWritableFile(path, OpenMode::kAppend).status());
  return std::make_unique<internal::FileLock>();
}

Result<std::unique_ptr<internal::RandomAccessFile>> FakeFileSystem::NewRandomAccessFile(
    const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : place.node->is_dir ? EISDIR : 0;
  if (error != 0) return FileError("open", path, error);
  const uint64_t size = place.node->content.size();
  return std::unique_ptr<internal::RandomAccessFile>(new Reader(this, place.node, path, crashes_, size));
}

Result<std::unique_ptr<internal::BlockFile>> FakeFileSystem::NewBlockFile(const std::string& path,
                                                                          uint64_t size) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0 && place.node) error = EEXIST;
  if (error == 0 && UsedBytes() + size > capacity_) error = ENOSPC;
  if (error != 0) return FileError("create", path, error);
  place.node = std::make_shared<Node>(false);
  place.node->content.resize(size);
  place.node->durable_content = place.node->content;
  Change({.node = place.node, .from_dir = nullptr, .from = "", .to_dir = place.dir, .to = place.name});
  return std::unique_ptr<internal::BlockFile>(new Blocks(this, place.node, path));
}

Status FakeFileSystem::LinkFile(const std::string& from, const std::string& to) {
  MutexLock lock(&mu_);
  Place old_place, new_place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(from, &old_place);
  if (error == 0 && !old_place.node) error = ENOENT;
  if (error == 0) error = Find(to, &new_place);
  if (error == 0 && new_place.node) error = EEXIST;
  if (error != 0) return FileError("link", to, error);
  Change({.node = old_place.node,
          .from_dir = nullptr,
          .from = "",
          .to_dir = new_place.dir,
          .to = new_place.name});
  return Status::Ok();
}

Status FakeFileSystem::SyncFile(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0 && !place.node) error = ENOENT;
  if (error != 0) return FileError("sync", path, error);
  place.node->durable_content = place.node->content;
  place.node->pending.clear();
  return Status::Ok();
}

Result<Buffer> FakeFileSystem::MapFile(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : place.node->is_dir ? EISDIR : 0;
  if (error != 0) return FileError("map", path, error);
  return Buffer::CopyOf(std::span<const uint8_t>(place.node->content));
}

Result<std::vector<std::string>> FakeFileSystem::ListDir(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : !place.node->is_dir ? ENOTDIR : 0;
  if (error != 0) return FileError("list", path, error);
  std::vector<std::string> names;
  for (const auto& [name, node] : place.node->names) names.push_back(name);
  return names;
}

Status FakeFileSystem::CreateDir(const std::string& path, Parents parents) {
  MutexLock lock(&mu_);
  std::vector<std::string> parts;
  int error = Count(Kind::kWrite);
  if (error == 0 && !Split(path, &parts)) error = EINVAL;
  // Creates parents from the top down if they may be missing, otherwise only the last directory.
  const size_t first = parents == Parents::kCreateMissing || parts.empty() ? 1 : parts.size();
  if (error == 0 && parts.empty()) error = parents == Parents::kCreateMissing ? 0 : EEXIST;
  for (size_t n = first; error == 0 && n <= parts.size(); ++n) {
    std::string prefix;
    for (size_t i = 0; i < n; ++i) prefix += "/" + parts[i];
    Place place;
    error = Find(prefix, &place);
    if (error != 0) break;
    if (place.node) {
      if (parents == Parents::kMustExist || !place.node->is_dir) error = EEXIST;
      continue;
    }
    Change({.node = std::make_shared<Node>(true),
            .from_dir = nullptr,
            .from = "",
            .to_dir = place.dir,
            .to = place.name});
  }
  return error == 0 ? Status::Ok() : FileError("create directory", path, error);
}

Status FakeFileSystem::RemoveFile(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : place.node->is_dir ? EISDIR : 0;
  if (error != 0) return FileError("remove", path, error);
  Change({.node = place.node, .from_dir = place.dir, .from = place.name, .to_dir = nullptr, .to = ""});
  return Status::Ok();
}

Status FakeFileSystem::RemoveDir(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0) {
    error = !place.node                  ? ENOENT
            : !place.node->is_dir        ? ENOTDIR
            : !place.dir                 ? EBUSY  // the root
            : !place.node->names.empty() ? ENOTEMPTY
                                         : 0;
  }
  if (error != 0) return FileError("remove directory", path, error);
  Change({.node = place.node, .from_dir = place.dir, .from = place.name, .to_dir = nullptr, .to = ""});
  return Status::Ok();
}

Status FakeFileSystem::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(&mu_);
  Place source, target;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(from, &source);
  if (error == 0 && !source.node) error = ENOENT;
  if (error == 0 && !source.dir) error = EBUSY;
  if (error == 0) error = Find(to, &target);
  if (error == 0 && !target.dir) error = EBUSY;
  if (error == 0 && source.node == target.node) return Status::Ok();
  if (error == 0 && source.node->is_dir) {
    // A directory cannot be moved into itself.
    const std::function<bool(const NodePtr&)> holds = [&](const NodePtr& node) {
      return node == target.dir || std::any_of(node->names.begin(), node->names.end(),
                                               [&](const auto& name) { return holds(name.second); });
    };
    if (holds(source.node)) error = EINVAL;
  }
  if (error == 0 && target.node) {
    if (source.node->is_dir && !target.node->is_dir) error = ENOTDIR;
    if (!source.node->is_dir && target.node->is_dir) error = EISDIR;
    if (source.node->is_dir && target.node->is_dir && !target.node->names.empty()) error = ENOTEMPTY;
  }
  if (error != 0) return FileError("rename", from + "\" to \"" + to, error);
  Change({.node = source.node,
          .from_dir = source.dir,
          .from = source.name,
          .to_dir = target.dir,
          .to = target.name});
  return Status::Ok();
}

Status FakeFileSystem::SyncDir(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kWrite);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : !place.node->is_dir ? ENOTDIR : 0;
  if (error != 0) return FileError("sync directory", path, error);

  // A rename between directories becomes durable as a whole, so earlier changes in both directories must too.
  // Goes through later changes first, to find all directories that are affected.
  std::set<const Node*> dirs = {place.node.get()};
  std::vector<bool> is_synced(changes_.size());
  for (size_t i = changes_.size(); i-- > 0;) {
    const NameChange& change = changes_[i];
    is_synced[i] = dirs.count(change.from_dir.get()) || dirs.count(change.to_dir.get());
    if (!is_synced[i]) continue;
    if (change.from_dir) dirs.insert(change.from_dir.get());
    if (change.to_dir) dirs.insert(change.to_dir.get());
  }
  std::vector<NameChange> left;
  for (size_t i = 0; i < changes_.size(); ++i) {
    NameChange& change = changes_[i];
    if (!is_synced[i]) {
      left.push_back(std::move(change));
      continue;
    }
    if (change.from_dir) change.from_dir->durable_names.erase(change.from);
    if (change.to_dir) change.to_dir->durable_names[change.to] = change.node;
  }
  changes_ = std::move(left);
  return Status::Ok();
}

Result<bool> FakeFileSystem::FileExists(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == ENOENT || error == ENOTDIR) return false;
  if (error != 0) return FileError("stat", path, error);
  return place.node != nullptr;
}

Result<uint64_t> FakeFileSystem::FileSize(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : place.node->is_dir ? EISDIR : 0;
  if (error != 0) return FileError("stat", path, error);
  return uint64_t{place.node->content.size()};
}

Result<uint64_t> FakeFileSystem::GetFreeSpace(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Count(Kind::kRead);
  if (error == 0) error = Find(path, &place);
  if (error == 0 && !place.node) error = ENOENT;
  if (error != 0) return FileError("take the free space of", path, error);
  const uint64_t used = UsedBytes();
  return used < capacity_ ? capacity_ - used : 0;
}

Result<std::string> FakeFileSystem::ReadAll(const std::string& path) {
  MutexLock lock(&mu_);
  Place place;
  int error = Find(path, &place);
  if (error == 0) error = !place.node ? ENOENT : place.node->is_dir ? EISDIR : 0;
  if (error != 0) return FileError("read", path, error);
  return std::string(place.node->content.begin(), place.node->content.end());
}

Status FakeFileSystem::WriteAll(const std::string& path, std::string_view bytes) {
  MutexLock lock(&mu_);
  Place place;
  int error = Find(path, &place);
  if (error == 0 && place.node && place.node->is_dir) error = EISDIR;
  if (error != 0) return FileError("write", path, error);
  if (!place.node) {
    place.node = std::make_shared<Node>(false);
    place.dir->names[place.name] = place.node;
  }
  place.dir->durable_names[place.name] = place.node;
  place.node->content.assign(bytes.begin(), bytes.end());
  place.node->durable_content = place.node->content;
  place.node->pending.clear();
  return Status::Ok();
}

}  // namespace reverb::test
