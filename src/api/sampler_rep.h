// sampler_rep.h — the state of a public Sampler.
#ifndef REVERB_API_SAMPLER_REP_H_
#define REVERB_API_SAMPLER_REP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/key_owners.h"
#include "client/sampler.h"
#include "reverb/sampler.h"

namespace reverb {

struct Sampler::Rep {
  std::shared_ptr<internal::SamplerImpl> sampler;
  std::shared_ptr<internal::KeyOwners> owners;             // null for one server
  std::function<std::vector<std::string>()> column_names;  // for error messages; asks the server
  // Samples that a failed call had received: the next call returns them first.
  internal::Mutex mu;
  std::vector<internal::Sample> left_over GUARDED_BY(mu);
};

}  // namespace reverb

#endif  // REVERB_API_SAMPLER_REP_H_
