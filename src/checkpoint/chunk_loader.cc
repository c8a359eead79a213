#include "checkpoint/chunk_loader.h"

#include <algorithm>
#include <utility>

#include "checkpoint/source.h"

namespace reverb::internal {

ChunkLoader::ChunkLoader(std::string checkpoint_path, std::vector<std::vector<bool>> wanted,
                         ChunkStore* store, std::function<void(uint64_t)> progress)
    : checkpoint_path_(std::move(checkpoint_path)),
      wanted_(std::move(wanted)),
      store_(store),
      progress_(std::move(progress)) {}

Result<std::unique_ptr<ChunkLoader>> ChunkLoader::Start(FileSystem* fs, const std::string& checkpoint_path,
                                                        const std::vector<SavedSegment>& segments,
                                                        std::vector<std::vector<bool>> wanted,
                                                        ChunkStore* store,
                                                        std::function<void(uint64_t)> progress) {
  std::unique_ptr<ChunkLoader> loader(
      new ChunkLoader(checkpoint_path, std::move(wanted), store, std::move(progress)));
  std::vector<Job> jobs;
  loader->files_.resize(segments.size());
  loader->chunks_.resize(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    loader->first_job_.push_back(jobs.size());
    if (segments[i].kind != SegmentKind::kChunks) continue;
    uint64_t to_load = 0;
    if (const std::vector<bool>& bits = loader->wanted_[i]; !bits.empty()) {
      REVERB_ASSIGN_OR_RETURN(loader->files_[i], SegmentChunks::Open(fs, checkpoint_path, segments[i]));
      loader->chunks_[i].resize(bits.size());
      for (const ChunkRange& range : loader->files_[i]->ranges()) {
        jobs.push_back({.segment = i, .range = range});
        to_load += range.end_offset - range.begin_offset;
      }
    }
    loader->progress_(segments[i].file_bytes - to_load);
  }
  loader->first_job_.push_back(jobs.size());
  const bool is_much = jobs.size() > 1;
  {
    MutexLock lock(&loader->mu_);
    loader->jobs_ = std::move(jobs);
  }
  if (is_much) {
    loader->helper_ = std::thread([self = loader.get()] {
      while (self->LoadNext()) {
      }
    });
  }
  return loader;
}

ChunkLoader::~ChunkLoader() { StopHelper(); }

void ChunkLoader::StopHelper() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  if (helper_.joinable()) helper_.join();
}

Status ChunkLoader::Finish() {
  StopHelper();
  MutexLock lock(&mu_);
  return status_;
}

bool ChunkLoader::LoadNext() {
  size_t job = 0;
  {
    MutexLock lock(&mu_);
    if (stopped_ || !status_.ok()) return false;
    while (next_job_ < jobs_.size() && jobs_[next_job_].state != State::kWaiting) ++next_job_;
    if (next_job_ == jobs_.size()) return false;
    job = next_job_++;
    jobs_[job].state = State::kTaken;
  }
  Load(job);
  return true;
}

void ChunkLoader::Load(size_t job) {
  size_t segment = 0;
  ChunkRange range;
  {
    MutexLock lock(&mu_);
    segment = jobs_[job].segment;
    range = jobs_[job].range;
  }
  Status status = files_[segment]->Load(range, wanted_[segment], *store_, chunks_[segment], progress_);
  if (ChunkTier* const tier = store_->tier(); tier != nullptr && status.ok()) {
    tier->AddLoaded(std::span(chunks_[segment]).subspan(range.first, range.end - range.first));
  }
  if (status.ok()) status = CheckRoomToLoad(store_->budget().total(), checkpoint_path_, *store_);
  MutexLock lock(&mu_);
  if (status.ok()) {
    jobs_[job].state = State::kLoaded;
  } else if (status_.ok()) {
    status_ = std::move(status);
  }
  changed_.NotifyAll();
}

Status ChunkLoader::Fetch(size_t segment, uint32_t ordinal) {
  size_t job = first_job_[segment];
  bool is_mine = false;
  {
    MutexLock lock(&mu_);
    while (ordinal >= jobs_[job].range.end) ++job;
    at_hand_segment_ = segment;
    at_hand_first_ = jobs_[job].range.first;
    at_hand_count_ = jobs_[job].range.end - jobs_[job].range.first;
    is_mine = status_.ok() && jobs_[job].state == State::kWaiting;
    if (is_mine) jobs_[job].state = State::kTaken;
  }
  if (is_mine) Load(job);
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return status_;
      if (jobs_[job].state == State::kLoaded) return Status::Ok();
    }
    // The helper loads it: meanwhile load another range, if there is one.
    if (LoadNext()) continue;
    MutexLock lock(&mu_);
    while (status_.ok() && jobs_[job].state != State::kLoaded) changed_.Wait(&mu_);
  }
}

}  // namespace reverb::internal
