#include "core/extensions/insert_on_sample.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

constexpr Duration kLogInterval = std::chrono::seconds(10);

// Runs `work` now or, if this thread is already running such work, right after it. An insert may unblock
// samples of the target, which are copied in turn: with two tables that feed each other and many waiting
// samplers, the calls would otherwise nest without bound.
void RunWithoutNesting(std::function<void()> work) {
  thread_local std::deque<std::function<void()>>* current = nullptr;
  if (current != nullptr) {
    current->push_back(std::move(work));
    return;
  }
  std::deque<std::function<void()>> queue;
  queue.push_back(std::move(work));
  current = &queue;
  while (!queue.empty()) {
    const std::function<void()> next = std::move(queue.front());
    queue.pop_front();
    next();
  }
  current = nullptr;
}

}  // namespace

Status InsertOnSampleOptions::Validate() const {
  if (max_under_way < 1) {
    return Status::InvalidArgument("insert on sample: max_under_way is " + std::to_string(max_under_way) +
                                   "; it must be at least 1");
  }
  if (clock == nullptr) return Status::InvalidArgument("insert on sample: no clock was given");
  return Status::Ok();
}

class InsertOnSample::Copier : public std::enable_shared_from_this<Copier> {
 public:
  explicit Copier(const InsertOnSampleOptions& options)
      : options_(options), log_(options.clock, kLogInterval) {}

  void set_target(const std::shared_ptr<ConcurrentTable>& target) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    target_ = target;
  }

  Counts counts() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return counts_;
  }

  // REQUIRES: no table's lock is held, since this may release the last reference to the target.
  void Copy(const Item& item) EXCLUDES(mu_) {
    const uint64_t key = item.key;
    std::shared_ptr<ConcurrentTable> target;
    {
      MutexLock lock(&mu_);
      target = target_.lock();
    }
    if (!target) return Drop(key, Status::NotFound("the target table was destroyed or never set"));
    if (Status status = target->CheckItem(item); !status.ok()) return Drop(key, status);
    bool is_full = false;
    {
      MutexLock lock(&mu_);
      is_full = counts_.under_way >= options_.max_under_way;
      if (!is_full) ++counts_.under_way;
    }
    if (is_full) {
      return Drop(key, Status::ResourceExhausted("table \"" + target->name() +
                                                 "\": " + std::to_string(options_.max_under_way) +
                                                 " copies are in flight, the maximum (max_under_way)"));
    }
    target->InsertAsync({item}, options_.timeout, [self = shared_from_this(), key](Operation& op) {
      {
        MutexLock lock(&self->mu_);
        --self->counts_.under_way;
        if (op.status.ok()) ++self->counts_.inserted;
      }
      if (!op.status.ok()) self->Drop(key, op.status);
    });
  }

 private:
  void Drop(uint64_t key, const Status& reason) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      ++(reason.code() == StatusCode::kDeadlineExceeded ? counts_.timed_out : counts_.failed);
    }
    if (!IsLogged()) return;
    log_.Log(
        LogLevel::kWarning, StatusCodeName(reason.code()),
        "insert on sample: the copy of item " + std::to_string(key) + " was dropped: " + reason.ToString());
  }

  const InsertOnSampleOptions options_;
  LogEvery log_;

  mutable Mutex mu_;
  std::weak_ptr<ConcurrentTable> target_ GUARDED_BY(mu_);
  Counts counts_ GUARDED_BY(mu_);
};

InsertOnSample::InsertOnSample(const InsertOnSampleOptions& options)
    : copier_(std::make_shared<Copier>(options)) {}

InsertOnSample::~InsertOnSample() = default;

void InsertOnSample::OnSample(const ItemView& item, Context& context) {
  if (item.times_sampled != 1) return;
  Item copy{.key = item.key, .priority = item.priority, .times_sampled = 1, .trajectory = *item.trajectory};
  context.AfterUnlock([copier = copier_, copy = std::move(copy)]() mutable {
    RunWithoutNesting([copier = std::move(copier), copy = std::move(copy)] { copier->Copy(copy); });
  });
}

Status InsertOnSample::Bind(const std::shared_ptr<ConcurrentTable>& target) {
  if (target != nullptr) {
    const auto& served = target->options().extensions;
    if (std::ranges::any_of(served, [this](const auto& extension) { return extension.get() == this; })) {
      return Status::InvalidArgument("insert on sample: table \"" + target->name() +
                                     "\" cannot be its own target; use another table");
    }
  }
  copier_->set_target(target);
  return Status::Ok();
}

InsertOnSample::Counts InsertOnSample::counts() const { return copier_->counts(); }

Result<std::shared_ptr<InsertOnSample>> MakeInsertOnSample(const std::shared_ptr<ConcurrentTable>& target,
                                                           const InsertOnSampleOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  auto extension = std::make_shared<InsertOnSample>(options);
  REVERB_RETURN_IF_ERROR(extension->Bind(target));
  return extension;
}

}  // namespace reverb::internal
