// sample_factory.h — makes public handles from internal values.
#ifndef REVERB_API_SAMPLE_FACTORY_H_
#define REVERB_API_SAMPLE_FACTORY_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/table.h"
#include "reverb/table.h"
#include "tensor/item.h"

namespace reverb::internal {

struct SampleFactory {
  static SampledTrajectory Make(Sample sample) { return SampledTrajectory(std::move(sample)); }
  static SampledTrajectory Make(Sample sample, SampleLease lease) {
    SampledTrajectory made(std::move(sample));
    made.lease_ = std::move(lease);
    return made;
  }
};

inline std::vector<SampledTrajectory> MakeSampledTrajectories(std::vector<Sample> samples) {
  std::vector<SampledTrajectory> made;
  made.reserve(samples.size());
  for (Sample& sample : samples) made.push_back(SampleFactory::Make(std::move(sample)));
  return made;
}

struct TableFactory {
  static reverb::Table Make(std::shared_ptr<ConcurrentTable> table) {
    return reverb::Table(std::move(table));
  }
};

}  // namespace reverb::internal

#endif  // REVERB_API_SAMPLE_FACTORY_H_
