// leases.h — leases of samples: the argument `lease`, and reverb.leases.
//
// Threads: with the GIL.
#ifndef REVERB_PYTHON_LEASES_H_
#define REVERB_PYTHON_LEASES_H_

#include <chrono>

#include "python_api.h"
#include "reverb/sample_lease.h"

namespace reverb::python {

// Converts the argument `lease`, or another of that kind, to a time. None is zero. ValueError for anything that is
// not a positive finite number.
std::chrono::nanoseconds LeaseFromSeconds(nb::handle seconds, const char* name = "lease");

// Returns a copy of a sample, of a list of steps or of a batch that has the methods of a lease. It keeps its iterator,
// which releases the lease when it is destroyed.
nb::object WithLease(nb::object sample, SampleLease lease, nb::handle iterator);
// Releases the lease of a sample that the caller does not get, as far as the server answers soon. Raises nothing.
void ReleaseLease(const SampleLease& lease);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_LEASES_H_
