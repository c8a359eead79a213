// samples.h — conversion of samples to ReplaySample and SampleInfo.
//
// Threads: with the GIL, except for Decode().
#ifndef REVERB_PYTHON_SAMPLES_H_
#define REVERB_PYTHON_SAMPLES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "python_api.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tree.h"

namespace reverb::python {

// A sample with decoded data.
struct Decoded {
  uint64_t key = 0;
  double probability = 0;
  int64_t table_size = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  std::vector<Tensor> columns;
  bool has_squeezed = false;
};
// Decodes a sample; needs no GIL. Large columns use memory from the pool.
Result<Decoded> Decode(const SampledTrajectory& sample, const TensorPool& pool);

// Arranges the columns of samples: flat, or in the nest of the table's signature.
class Unpacking {
 public:
  Unpacking() = default;
  // A nest with a leaf for each column.
  Unpacking(nb::handle nest, std::string table)
      : structure_(Structure().Merged(nest.ptr())),
        table_(std::move(table)),
        has_names_(nb::isinstance<nb::dict>(nest) || nb::isinstance<nb::tuple>(nest) ||
                   nb::isinstance<nb::list>(nest)) {}

  int32_t num_columns() const { return structure_.num_columns(); }  // 0: flat
  // Whether the nest is more than a single leaf.
  bool has_names() const { return has_names_; }
  // ValueError if the number of columns differs from the number of leaves.
  nb::object Pack(std::vector<nb::object> columns) const;

 private:
  Structure structure_;
  std::string table_;
  bool has_names_ = false;
};

// Fields are new references; a null one is the pending Python error.
nb::object MakeSampleInfo(std::initializer_list<PyObject*> fields);
nb::object MakeReplaySample(nb::handle info, nb::object data);
// The same for a padded batch, with the number of rows of each sample without padding.
nb::object MakePaddedBatch(nb::handle info, nb::object data, nb::object lengths);

nb::object ToTrajectory(Decoded sample, const Unpacking& unpacking);
// Returns one ReplaySample for each step.
nb::object ToTimesteps(Decoded sample, const Unpacking& unpacking);

}  // namespace reverb::python

#endif  // REVERB_PYTHON_SAMPLES_H_
