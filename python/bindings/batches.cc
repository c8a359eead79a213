// Samples as batches: Client.sample_batches().
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "iteration.h"
#include "leases.h"
#include "python_api.h"
#include "reverb/sampler.h"
#include "samples.h"

namespace reverb::python {
namespace {

struct BatchSettings {
  int64_t batch_size = 0;
  std::optional<int64_t> num_batches;
  bool exact = false;
  int64_t num_streams = 1;
  int64_t prefetch = 2;  // batches
  bool pad = false;
  bool all_or_nothing = false;
  std::chrono::nanoseconds lease{0};
};

// The most samples that a stream may have in flight (see the native sampler).
constexpr int64_t kMaxInFlight = int64_t{1} << 20;

class BatchIterator : public Iteration {
 public:
  BatchIterator(nb::object client, std::string table, const BatchSettings& settings, Timeout timeout)
      : Iteration(std::move(client), std::move(table), Nest::kSignatureOrWritten, timeout),
        settings_(settings) {
    Check("batch_size", settings.batch_size, 1, kMaxInFlight);
    if (settings.num_batches) Check("num_batches", *settings.num_batches, 1, INT64_MAX / settings.batch_size);
    Check("num_streams", settings.num_streams, 1, 1024);
    Check("prefetch", settings.prefetch, 0, kMaxInFlight / settings.batch_size);
  }

  nb::object Next() { return Take(settings_.batch_size); }

  // The next batch, of another size than the others.
  nb::object Take(int64_t n) {
    Check("n", n, 1, settings_.batch_size);
    const Turn::Holder turn(turn_);
    if (is_closed_) throw nb::stop_iteration();
    if (!is_started_) Start();
    if (settings_.num_batches && taken_ >= *settings_.num_batches) {
      if (is_leased())
        RaiseUnlessOk(Await([&](const WaitOptions& wait) { return sampler_->AckPrevious(wait); }));
      End();
    }
    Batch batch;
    RaiseUnlessOk(Await([&](const WaitOptions& wait) {
      return sampler_->NextBatch(n, &batch, {.pad = settings_.pad, .pool = &pool_}, wait);
    }));
    ++taken_;
    if (!is_leased()) {
      LearnStructure();
      return ToPython(std::move(batch));
    }
    const SampleLease lease = batch.info.lease;
    try {
      LearnStructure();
      return WithLease(ToPython(std::move(batch)), lease, nb::find(this));
    } catch (...) {
      ReleaseLease(lease);  // the caller does not get the batch
      throw;
    }
  }

 private:
  bool is_leased() const { return settings_.lease > std::chrono::nanoseconds(0); }
  static void Check(const char* name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    RaiseValueError(std::string(name) + " (" + std::to_string(value) + ") must be between " +
                    std::to_string(least) + " and " + std::to_string(most));
  }

  void Start() override {
    Unpack(/*fresh=*/true);
    const bool may_read_ahead =
        settings_.prefetch > 0 && !settings_.exact && !is_leased() && MayReadAhead() == ReadAhead::kFreely;
    Open({.table = table_,
          .max_samples = settings_.num_batches ? *settings_.num_batches * settings_.batch_size : -1,
          .max_in_flight_samples_per_worker = std::max<int64_t>(1, settings_.prefetch) * settings_.batch_size,
          .num_workers = static_cast<int32_t>(settings_.num_streams),
          .exact = !may_read_ahead,
          .batch_size = settings_.all_or_nothing ? settings_.batch_size : 0,
          .all_or_nothing = settings_.all_or_nothing,
          .check = settings_.pad ? BatchCheck::kSameLayout : BatchCheck::kSameShape,
          .lease = settings_.lease});
    is_started_ = true;
  }

  int64_t NumMissing() const override {
    return settings_.num_batches && taken_ >= *settings_.num_batches ? 0 : settings_.batch_size;
  }

  // Returns a SampleInfo of arrays.
  nb::object ToInfo(const BatchInfo& info) {
    const size_t n = info.keys.size();
    ArrayBlock block(n * (4 * sizeof(uint64_t) + sizeof(int32_t)), pool_);
    const auto add = [&](DType dtype, const auto& values) {
      return block.Add(dtype, values.data(), n).release().ptr();
    };
    return MakeSampleInfo({add(DType::kUint64, info.keys), add(DType::kFloat64, info.probabilities),
                           add(DType::kInt64, info.table_sizes), add(DType::kFloat64, info.priorities),
                           add(DType::kInt32, info.times_sampled)});
  }

  nb::object ToPython(Batch batch) {
    std::vector<nb::object> columns;
    columns.reserve(batch.columns.size());
    for (Tensor& column : batch.columns) columns.push_back(ToNumpy(std::move(column)));
    const Unpacking& unpacking = UnpackingOf(columns.size());
    const nb::object infos = ToInfo(batch.info);
    nb::object data = unpacking.Pack(std::move(columns));
    if (!settings_.pad) return MakeReplaySample(infos, std::move(data));
    std::vector<nb::object> lengths;
    for (const std::vector<int64_t>& each : batch.lengths) {
      lengths.push_back(
          ArrayBlock(each.size() * sizeof(int64_t), pool_).Add(DType::kInt64, each.data(), each.size()));
    }
    return MakePaddedBatch(infos, std::move(data), unpacking.Pack(std::move(lengths)));
  }

  const BatchSettings settings_;
  const TensorPool pool_;
  int64_t taken_ = 0;
};

}  // namespace

void BindBatches(nb::module_& module) {
  using Self = BatchIterator;
  nb::class_<Self> bound(module, "BatchIterator", nb::type_slots(CollectorSlots<Self>()),
                         "An iterator over batches of samples.");
  bound.def(
      "__init__",
      [](Self* self, nb::object client, std::string table, int64_t batch_size,
         std::optional<int64_t> num_batches, std::optional<double> timeout, Truth exact, int64_t num_streams,
         int64_t prefetch, Truth pad, Truth all_or_nothing, nb::handle lease) {
        new (self) Self(std::move(client), std::move(table),
                        {.batch_size = batch_size,
                         .num_batches = num_batches,
                         .exact = exact.value,
                         .num_streams = num_streams,
                         .prefetch = prefetch,
                         .pad = pad.value,
                         .all_or_nothing = all_or_nothing.value,
                         .lease = LeaseFromSeconds(lease)},
                        TimeoutFromSeconds(timeout));
      },
      "client"_a, "table"_a, "batch_size"_a, "num_batches"_a.none(), "timeout"_a.none(), "exact"_a,
      "num_streams"_a, "prefetch"_a, "pad"_a, "all_or_nothing"_a = Truth{}, "lease"_a = nb::none());
  bound.def("take", &Self::Take, "n"_a, "The next batch, of n samples, at most batch_size.");
  BindIteration(bound);
}

}  // namespace reverb::python
