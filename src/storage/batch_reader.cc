#include "storage/batch_reader.h"

#include <cerrno>
#include <utility>

#include "storage/storage_thread.h"

namespace reverb::internal {
namespace {

Status StoppedStatus() { return Status::Cancelled("the storage of the server was closed"); }

}  // namespace

BatchReader::BatchReader(const Options& options)
    : options_(options), ring_(options.use_io_uring ? IoRing::Create(options.depth) : nullptr) {
  if (ring_ == nullptr) return;
  MutexLock lock(&mu_);
  is_ring_done_ = false;
  ring_thread_ = StartStorageThread("rv-disk-read", [this] { RunRing(); });
  if (!ring_thread_.joinable()) {
    is_ring_broken_ = true;
    is_ring_done_ = true;
  }
}

void BatchReader::Submit(std::vector<Read> reads) {
  bool wake = false;
  bool is_stopped = false;
  {
    MutexLock lock(&mu_);
    is_stopped = is_stopped_;
    for (Read& read : reads) {
      if (is_stopped) break;
      if (ring_ != nullptr && !is_ring_broken_ && read.file->descriptor() >= 0) {
        waiting_.push_back(std::move(read));
      } else {
        AddTask({.read = std::move(read)});
      }
    }
    wake = !waiting_.empty() && is_ring_waiting_;
    if (wake) is_ring_waiting_ = false;
  }
  if (is_stopped) {
    for (const Read& read : reads) read.sink->OnRead(read.index, StoppedStatus());
    return;
  }
  ring_wanted_.NotifyOne();
  if (wake) ring_->Wake();
}

void BatchReader::AddTask(Task task) {
  const size_t most = task.is_read ? options_.max_finishers : options_.max_threads;
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < most) {
    if (std::thread thread = StartStorageThread("rv-disk-done", [this] { RunTasks(); }); thread.joinable()) {
      threads_.push_back(std::move(thread));
    }
  }
  task_added_.NotifyOne();
}

void BatchReader::RunTasks() {
  mu_.Lock();
  while (true) {
    if (tasks_.empty()) {
      if (is_stopped_ && is_ring_done_) break;
      ++idle_;
      task_added_.Wait(&mu_);
      --idle_;
      continue;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    if (!task.is_read && is_stopped_) {
      task.is_read = true;
      task.status = StoppedStatus();
    }
    mu_.Unlock();
    if (!task.is_read) task.status = task.read.file->Read(task.read.offset, task.read.out);
    task.read.sink->OnRead(task.read.index, std::move(task.status));
    task = {};  // may release the last reference to a file
    mu_.Lock();
  }
  mu_.Unlock();
}

void BatchReader::RunRing() {
  std::vector<Read> in_flight(options_.depth);
  std::vector<size_t> free(options_.depth);  // of in_flight
  for (size_t i = 0; i < free.size(); ++i) free[i] = i;
  mu_.Lock();
  while (true) {
    while (waiting_.empty() && free.size() == in_flight.size() && !is_stopped_) ring_wanted_.Wait(&mu_);
    if (is_stopped_) {
      for (Read& read : waiting_) {
        AddTask({.read = std::move(read), .is_read = true, .status = StoppedStatus()});
      }
      waiting_.clear();
      if (free.size() == in_flight.size()) break;
    }
    while (!waiting_.empty() && !free.empty()) {
      const size_t slot = free.back();
      free.pop_back();
      Read& read = in_flight[slot];
      read = std::move(waiting_.front());
      waiting_.pop_front();
      ring_->Add(read.file->descriptor(), read.offset, read.out, slot);
    }
    // A read that is submitted while all slots are taken need not wake this thread: a completion does.
    is_ring_waiting_ = !free.empty();
    mu_.Unlock();
    const bool works = AwaitRing(&in_flight, &free);
    mu_.Lock();
    is_ring_waiting_ = false;
    if (works) continue;
    // Never seen. The reads that were started may still write to their memory, which is therefore never freed.
    is_ring_broken_ = true;
    for (Read& read : in_flight) {
      if (!read.sink) continue;
      AddTask({.read = read, .is_read = true, .status = Status::Unavailable("io_uring has failed")});
      new Read(std::move(read));
    }
    for (Read& read : waiting_) AddTask({.read = std::move(read)});
    waiting_.clear();
    break;
  }
  is_ring_done_ = true;
  task_added_.NotifyAll();
  mu_.Unlock();
}

bool BatchReader::AwaitRing(std::vector<Read>* in_flight, std::vector<size_t>* free) {
  constexpr size_t kMaxCompletions = 64;
  IoRing::Completion done[kMaxCompletions];
  const int count = ring_->Wait(done);
  if (count < 0) return false;
  MutexLock lock(&mu_);
  for (const IoRing::Completion& completion : std::span(done, static_cast<size_t>(count))) {
    Read& read = (*in_flight)[completion.id];
    Task task{.read = std::exchange(read, {})};
    free->push_back(completion.id);
    // A short read is repeated with an ordinary call, which also finds out what is wrong.
    task.is_read = completion.result == static_cast<int64_t>(task.read.out.size());
    if (completion.result < 0 && completion.result != -EAGAIN && completion.result != -EINTR) {
      task.is_read = true;
      task.status = FileError("read", task.read.file->path(), -completion.result);
    }
    AddTask(std::move(task));
  }
  return true;
}

void BatchReader::Stop() {
  std::vector<std::thread> threads;
  std::thread ring_thread;
  bool wake = false;
  {
    MutexLock lock(&mu_);
    is_stopped_ = true;
    ring_thread = std::move(ring_thread_);
    wake = ring_ != nullptr && ring_thread.joinable();
    ring_wanted_.NotifyAll();
    task_added_.NotifyAll();
  }
  if (wake) ring_->Wake();
  if (ring_thread.joinable()) ring_thread.join();
  {
    MutexLock lock(&mu_);
    threads.swap(threads_);
    task_added_.NotifyAll();
  }
  for (std::thread& thread : threads) thread.join();
  std::deque<Task> left;  // if the system had no thread for them
  {
    MutexLock lock(&mu_);
    left.swap(tasks_);
  }
  for (Task& task : left) task.read.sink->OnRead(task.read.index, StoppedStatus());
}

}  // namespace reverb::internal
