// sampler_rep.h — the state of a public Sampler.
#ifndef REVERB_API_SAMPLER_REP_H_
#define REVERB_API_SAMPLER_REP_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/held_leases.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/sample_source.h"
#include "reverb/sampler.h"

namespace reverb {

struct Sampler::Rep {
  // Takes n samples, first those that are left over. On an error, the received samples are left over.
  Status Take(int64_t n, const WaitOptions& wait, std::vector<internal::Sample>* samples) EXCLUDES(mu);
  // Acknowledges what the last call returned, and takes up to n samples that are left over. Subtracts the time that
  // this takes from *wait.
  Status BeginTake(int64_t n, WaitOptions* wait, std::vector<internal::Sample>* samples) EXCLUDES(mu);
  // Keeps samples that the caller does not get for the next call; releases leased ones.
  void GiveBack(std::vector<internal::Sample> samples) EXCLUDES(mu);
  SampleLease HandOut(std::span<const internal::Sample> samples) const;

  std::shared_ptr<internal::SampleSource> sampler;
  std::function<std::vector<std::string>()> column_names;  // for error messages; asks the server
  std::unique_ptr<internal::HandedOutLeases> leases;       // null if samples are not leased
  // Samples that a failed call had received: the next call returns them first. Leased ones are never left over.
  internal::Mutex mu;
  std::vector<internal::Sample> left_over GUARDED_BY(mu);
};

}  // namespace reverb

#endif  // REVERB_API_SAMPLER_REP_H_
