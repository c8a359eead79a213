// The lease of a sample or of a batch: reverb.leases uses it.
#include "leases.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "errors.h"
#include "gil.h"

namespace reverb::python {
namespace {

Lazy with_lease("reverb.leases", "_with_lease");
Lazy outcome_type("reverb.leases", "LeaseOutcome");

class LeaseObject {
 public:
  explicit LeaseObject(SampleLease lease) : lease_(Owned<SampleLease>(std::move(lease))) {}

  nb::object Ack(std::optional<double> timeout) {
    return Call(timeout, [&](const WaitOptions& wait) { return lease_->Ack(wait); });
  }
  nb::object Release(std::optional<double> timeout) {
    return Call(timeout, [&](const WaitOptions& wait) { return lease_->Release(wait); });
  }
  nb::object Extend(nb::handle seconds, std::optional<double> timeout) {
    if (seconds.is_none()) RaiseValueError("seconds (None) must be a positive number of seconds");
    const std::chrono::nanoseconds lease = LeaseFromSeconds(seconds, "seconds");
    return Call(timeout, [&](const WaitOptions& wait) { return lease_->Extend(lease, wait); });
  }
  bool is_held() const { return lease_->is_held(); }

 private:
  template <typename F>
  nb::object Call(std::optional<double> timeout, F&& call) {
    origin_.Check();
    const LeaseOutcome outcome = ValueOrRaise(Waiting(TimeoutFromSeconds(timeout)).Run(call));
    return outcome_type.get()(outcome.settled, outcome.gone, outcome.expired);
  }

  const Origin origin_;
  Owned<SampleLease> lease_;
};

}  // namespace

std::chrono::nanoseconds LeaseFromSeconds(nb::handle seconds, const char* name) {
  if (seconds.is_none()) return std::chrono::nanoseconds(0);
  const auto refuse = [&] {
    RaiseValueError(std::string(name) + " (" + nb::cast<std::string>(nb::repr(seconds)) +
                    ") must be a positive finite number of seconds, at most a billion");
  };
  if (PyBool_Check(seconds.ptr())) refuse();
  const double value = PyFloat_AsDouble(seconds.ptr());
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    refuse();
  }
  constexpr double kMost = 1e9;
  if (!std::isfinite(value) || value <= 0 || value > kMost) refuse();
  // A lease of no nanoseconds would be none.
  return std::max(std::chrono::nanoseconds(1), std::chrono::nanoseconds(static_cast<int64_t>(value * 1e9)));
}

nb::object WithLease(nb::object sample, SampleLease lease, nb::handle iterator) {
  const nb::object object = nb::cast(new LeaseObject(std::move(lease)), nb::rv_policy::take_ownership);
  return with_lease.get()(sample, object, iterator);
}

void ReleaseLease(const SampleLease& lease) {
  constexpr std::chrono::seconds kTimeout{1};
  const GilRelease released;
  (void)lease.Release({.timeout = kTimeout});
}

void BindLeases(nb::module_& module) {
  using Self = LeaseObject;
  nb::class_<Self>(module, "Lease", "The native part of reverb.leases.")
      .def("ack", &Self::Ack, "timeout"_a = nb::none())
      .def("release", &Self::Release, "timeout"_a = nb::none())
      .def("extend", &Self::Extend, "seconds"_a.none(), "timeout"_a = nb::none())
      .def_prop_ro("is_held", &Self::is_held);
}

}  // namespace reverb::python
