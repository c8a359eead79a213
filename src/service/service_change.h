// service_change.h — marks calls that change a table, so that Service::Stop() can wait for them.
#ifndef REVERB_SERVICE_SERVICE_CHANGE_H_
#define REVERB_SERVICE_SERVICE_CHANGE_H_

#include "base/mutex.h"
#include "reverb/status.h"
#include "service/service.h"

namespace reverb::internal {

inline Status ShuttingDown() { return Status::Unavailable("the server is shutting down"); }

// Both counters are sequentially consistent: either the change sees that changes are refused, or Stop() sees the
// change.
class Service::Change {
 public:
  explicit Change(Service* service) : service_(service) { service_->changes_.fetch_add(1); }
  ~Change() {
    if (service_->changes_.fetch_sub(1) > 1 || !service_->refuses_changes_.load()) return;
    MutexLock lock(&service_->mu_);
    service_->change_ended_.NotifyAll();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  Status status() const { return service_->refuses_changes_.load() ? ShuttingDown() : Status::Ok(); }

 private:
  Service* const service_;
};

}  // namespace reverb::internal

#endif  // REVERB_SERVICE_SERVICE_CHANGE_H_
