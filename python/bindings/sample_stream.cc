// Samples as batches of whatever has arrived, for datasets of other frameworks.
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
#include "python_api.h"
#include "reverb/sampler.h"
#include "samples.h"

namespace reverb::python {
namespace {

struct StreamSettings {
  int64_t max_samples = -1;
  int64_t max_in_flight = 1;
  int64_t num_workers = -1;
  int64_t batch_size = 0;  // of all batches; 0: as many as have arrived
  Timeout rate_limiter_timeout = {};
};

class SampleStream : public Iteration {
 public:
  SampleStream(nb::object client, std::string table, const StreamSettings& settings)
      : Iteration(std::move(client), std::move(table), Nest::kFlat, {}), settings_(settings) {}

  // Returns (info, columns, squeezed); None if nothing has arrived within `seconds`.
  nb::object Take(double seconds) {
    const Turn::Holder turn(turn_);
    if (is_closed_) throw nb::stop_iteration();
    if (!is_started_) Start();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    bool has_expired = false;
    Batch batch;
    const Status status = Await([&](const WaitOptions& wait) {
      // Ends the wait here and not by its timeout, after which the sampler would ask the server for the reason.
      const WaitOptions slice{.timeout = {}, .on_wait = [&] {
                                REVERB_RETURN_IF_ERROR(wait.on_wait());
                                has_expired = std::chrono::steady_clock::now() >= deadline;
                                return has_expired ? Status::Cancelled("nothing has arrived") : Status::Ok();
                              }};
      const BatchOptions options{.pad = false, .pool = &pool_};
      if (settings_.batch_size > 0) return sampler_->NextBatch(settings_.batch_size, &batch, options, slice);
      return sampler_->NextSome(settings_.max_in_flight, &batch, options, slice);
    });
    if (status.ok()) return ToPython(std::move(batch));
    if (has_expired && status.code() == StatusCode::kCancelled) return nb::none();
    // After max_samples, or when the rate limiter has blocked for too long.
    if (status.code() == StatusCode::kOutOfRange || status.code() == StatusCode::kDeadlineExceeded) End();
    Raise(status);
  }

 private:
  void Start() override {
    const bool is_batched = settings_.batch_size > 0;
    const bool may_end_early = settings_.rate_limiter_timeout.has_value();
    Open({.table = table_,
          .max_samples = settings_.max_samples,
          .max_in_flight_samples_per_worker = std::max(settings_.max_in_flight, settings_.batch_size),
          .whole_windows = !is_batched,
          .num_workers = static_cast<int32_t>(settings_.num_workers),
          .exact = client().MayReadAhead(table_) != ReadAhead::kFreely,
          // The end of a stream must not discard the first samples of a batch.
          .batch_size = is_batched && may_end_early ? settings_.batch_size : 0,
          .all_or_nothing = is_batched && may_end_early,
          .check = is_batched ? BatchCheck::kSameShape : BatchCheck::kNone,
          .rate_limiter_timeout = settings_.rate_limiter_timeout});
    is_started_ = true;
  }

  // Returns an array with memory from the pool.
  template <typename T>
  nb::object Array(DType dtype, const std::vector<T>& values) {
    Tensor tensor = ValueOrRaise(Tensor::Allocate(dtype, {static_cast<int64_t>(values.size())}, pool_));
    std::memcpy(tensor.data(), values.data(), tensor.num_bytes());
    return ToNumpy(std::move(tensor));
  }

  nb::object ToPython(Batch batch) {
    const BatchInfo& info = batch.info;
    nb::list infos;
    infos.append(Array(DType::kUint64, info.keys));
    infos.append(Array(DType::kFloat64, info.probabilities));
    infos.append(Array(DType::kInt64, info.table_sizes));
    infos.append(Array(DType::kFloat64, info.priorities));
    infos.append(Array(DType::kInt32, info.times_sampled));
    nb::list columns;
    for (Tensor& column : batch.columns) columns.append(ToNumpy(std::move(column)));
    nb::list squeezed;
    for (const bool each : batch.squeezed) squeezed.append(each);
    return nb::make_tuple(infos, columns, squeezed);
  }

  const StreamSettings settings_;
  const TensorPool pool_;
};

}  // namespace

void BindSampleStream(nb::module_& module) {
  using Self = SampleStream;
  nb::class_<Self> bound(module, "SampleStream", nb::type_slots(CollectorSlots<Self>()),
                         "Samples as they arrive, or in batches of one size.");
  bound.def(
      "__init__",
      [](Self* self, nb::object client, std::string table, int64_t max_samples, int64_t max_in_flight,
         int64_t num_workers, std::optional<double> rate_limiter_timeout, int64_t batch_size) {
        new (self)
            Self(std::move(client), std::move(table),
                 {.max_samples = max_samples,
                  .max_in_flight = max_in_flight,
                  .num_workers = num_workers,
                  .batch_size = batch_size,
                  .rate_limiter_timeout = TimeoutFromSeconds(rate_limiter_timeout, "rate_limiter_timeout")});
      },
      "client"_a, "table"_a, "max_samples"_a, "max_in_flight"_a, "num_workers"_a,
      "rate_limiter_timeout"_a.none(), "batch_size"_a);
  bound.def("take", &Self::Take, "seconds"_a,
            "Returns (info, columns, squeezed); None if nothing has arrived within `seconds`.");
  bound.def(
      "close", [](Self& self) { self.Close(); }, "Ends the stream, also for a thread that waits.");
}

}  // namespace reverb::python
