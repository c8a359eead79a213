// sample_factory.h — public values made of internal ones.
#ifndef REVERB_API_SAMPLE_FACTORY_H_
#define REVERB_API_SAMPLE_FACTORY_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/table.h"
#include "reverb/table.h"
#include "transport/messages.h"

namespace reverb::internal {

struct SampleFactory {
  static SampledTrajectory Make(Sample sample) {
    SampledTrajectory made;
    made.key_ = sample.key;
    made.priority_ = sample.priority;
    made.probability_ = sample.probability;
    made.table_size_ = sample.table_size;
    made.times_sampled_ = sample.times_sampled;
    made.inserted_at_nanos_ = sample.inserted_at;
    made.trajectory_ = std::make_shared<const Trajectory>(std::move(sample.trajectory));
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
