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

// Runs `work` now, or, if this thread is inside such work already, right after that. An insert may let
// samples of the target go ahead, which are copied in turn: with two tables that feed each other
// and many waiting samplers the calls would nest without bound.
void RunInTurn(std::function<void()> work) {
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

  // REQUIRES: no table's lock is held, as this may be the one to let go of the target.
  void Copy(const Item& item) EXCLUDES(mu_) {
    const uint64_t key = item.key;
    std::shared_ptr<ConcurrentTable> target;
    Status status = Status::NotFound("the target table is gone, or none was set");
    bool is_full = false;
    {
      MutexLock lock(&mu_);
      target = target_.lock();
      if (target) status = target->CheckItem(item);
      is_full = counts_.under_way >= options_.max_under_way;
      if (status.ok() && !is_full) ++counts_.under_way;
    }
    if (!status.ok()) return Drop(key, status);
    if (is_full) {
      return Drop(key, Status::ResourceExhausted(
                           "table \"" + target->name() + "\": " + std::to_string(options_.max_under_way) +
                           " copies are under way, the most that max_under_way allows"));
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
  void Drop(uint64_t key, const Status& why) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      ++(why.code() == StatusCode::kDeadlineExceeded ? counts_.timed_out : counts_.failed);
    }
    if (!IsLogged()) return;
    log_.Log(LogLevel::kWarning, StatusCodeName(why.code()),
             "insert on sample: the copy of item " + std::to_string(key) + " was dropped: " + why.ToString());
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
    RunInTurn([copier = std::move(copier), copy = std::move(copy)] { copier->Copy(copy); });
  });
}

Status InsertOnSample::Bind(const std::shared_ptr<ConcurrentTable>& target) {
  if (target != nullptr) {
    const auto& served = target->options().extensions;
    if (std::ranges::any_of(served, [this](const auto& extension) { return extension.get() == this; })) {
      return Status::InvalidArgument("insert on sample: table \"" + target->name() +
                                     "\" would be its own target; name another table");
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

namespace reverb {

Result<std::shared_ptr<InsertOnSampleExtension>> MakeInsertOnSample(const Table& target, Timeout timeout) {
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<InsertOnSampleExtension> extension,
                          internal::MakeInsertOnSample(target.table_, {.timeout = timeout}));
  return extension;
}

}  // namespace reverb
