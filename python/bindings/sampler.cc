// Samples one by one: Client.sample() and Client.peek().
#include "reverb/sampler.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client.h"
#include "errors.h"
#include "gil.h"
#include "iteration.h"
#include "leases.h"
#include "log.h"
#include "python_api.h"
#include "samples.h"
#include "signatures.h"

namespace reverb::python {
namespace {

// The most samples to prefetch, for a caller that takes them as fast as they arrive.
constexpr int64_t kMaxPrefetch = 1024;
// The same if sampling removes items, as a share of the samples taken so far: a caller that stops early loses
// few.
constexpr double kMaxPrefetchShare = 1.0 / 16;

class SampleIterator : public Iteration {
 public:
  SampleIterator(nb::object client, std::string table, int64_t num_samples, bool emit_timesteps, Nest nest,
                 bool exact, bool all_or_nothing, std::chrono::nanoseconds lease, Timeout timeout)
      : Iteration(std::move(client), std::move(table), nest, timeout),
        num_samples_(num_samples),
        emit_timesteps_(emit_timesteps),
        exact_(exact),
        all_or_nothing_(all_or_nothing),
        lease_(lease) {}

  ~SampleIterator() { LogDiscardedItems(); }

  nb::object Next() {
    const Turn::Holder turn(turn_);
    if (is_closed_) throw nb::stop_iteration();
    if (!is_started_) Start();
    if (num_samples_ < 0 || taken_ >= num_samples_) {
      if (is_leased() && sampler_)
        RaiseUnlessOk(Await([&](const WaitOptions& wait) { return sampler_->AckPrevious(wait); }));
      End();
    }
    if (next_ == fetched_.size()) Fetch();
    if (!is_leased()) return MakeFirst();
    SampleLease lease = fetched_[next_].lease();
    try {
      return WithLease(MakeFirst(), lease, nb::find(this));
    } catch (...) {
      ReleaseLease(lease);  // the caller does not get the sample
      throw;
    }
  }

 private:
  void Start() override {
    if (num_samples_ == 0 || num_samples_ < -1) {
      RaiseValueError("max_samples (" + std::to_string(num_samples_) + ") must be -1 or >= 1");
    }
    Unpack(/*fresh=*/num_samples_ > 1);
    if (num_samples_ > 1 && all_or_nothing_) {
      Open({.table = table_,
            .max_samples = num_samples_,
            .max_in_flight_samples_per_worker = num_samples_,
            .exact = true,
            .batch_size = num_samples_,
            .all_or_nothing = true,
            .timesteps = emit_timesteps_,
            .lease = lease_});
    } else if (is_leased() && num_samples_ > 0) {
      Open({.table = table_,
            .max_samples = num_samples_,
            .exact = true,
            .timesteps = emit_timesteps_,
            .lease = lease_});
    } else if (num_samples_ > 1) {
      const ReadAhead may_read_ahead = exact_ ? ReadAhead::kFreely : MayReadAhead();
      sampling_removes_items_ = may_read_ahead == ReadAhead::kLittle;
      const int64_t max_prefetch = may_read_ahead == ReadAhead::kNever ? 1 : kMaxPrefetch;
      Open({.table = table_,
            .max_samples = num_samples_,
            .max_in_flight_samples_per_worker = std::min(max_prefetch, num_samples_),
            .grow_window = true,
            .max_share_ahead = sampling_removes_items_ ? kMaxPrefetchShare : 0,
            .exact = exact_,
            .timesteps = emit_timesteps_});
    } else if (num_samples_ == 1 && is_async_) {
      Open({.table = table_, .max_samples = 1, .exact = true, .timesteps = emit_timesteps_});
    } else if (num_samples_ == 1) {
      single_ = Owned<Client>(client().client());
    }
    is_started_ = true;
  }

  int64_t NumMissing() const override { return next_ < fetched_.size() || taken_ >= num_samples_ ? 0 : 1; }

  void Fetch() {
    fetched_.clear();
    next_ = 0;
    RaiseUnlessOk(Await([&](const WaitOptions& wait) -> Status {
      // Each leased sample is acknowledged before the next one is taken.
      if (sampler_) return sampler_->NextSome(is_leased() ? 1 : kMaxPrefetch, &fetched_, wait);
      REVERB_ASSIGN_OR_RETURN(fetched_, single_->Sample(table_, 1, wait, emit_timesteps_));
      return Status::Ok();
    }));
  }

  nb::object MakeFirst() {
    Decoded sample = ValueOrRaise(TakeFirst());
    ++taken_;
    LearnStructure();
    const Unpacking& unpacking = UnpackingOf(sample.columns.size());
    if (emit_timesteps_) return ToTimesteps(std::move(sample), unpacking);
    return ToTrajectory(std::move(sample), unpacking);
  }

  // Returns the next fetched sample. Decoding a small one is faster than releasing the GIL.
  Result<Decoded> TakeFirst() {
    const SampledTrajectory sample = std::move(fetched_[next_++]);
    if (sample.decoded_bytes() < kLargeStep) return Decode(sample, pool_);
    const GilRelease released;
    return Decode(sample, pool_);
  }

  void Drop() override {
    single_ = Owned<Client>();
    LogDiscardedItems();
    fetched_.clear();
    next_ = 0;
    Iteration::Drop();
  }

  const int64_t num_samples_;
  const bool emit_timesteps_;
  const bool exact_;
  const bool all_or_nothing_;
  const std::chrono::nanoseconds lease_;
  bool is_leased() const { return lease_ > std::chrono::nanoseconds(0); }
  // Logs items that were removed from a queue but not returned to the caller.
  void LogDiscardedItems() {
    if (!sampler_ || !sampling_removes_items_ || sampler_.is_inherited()) return;
    const auto lost = static_cast<int64_t>(fetched_.size() - next_) + sampler_->stats().waiting;
    if (lost > 0) {
      Warn("an iterator over samples of table \"" + table_ + "\" ended with " + std::to_string(lost) +
           " prefetched items, which are no longer in the table and are lost; exact=True disables "
           "prefetching");
    }
  }

  const TensorPool pool_;
  bool sampling_removes_items_ = false;
  int64_t taken_ = 0;
  Owned<Client> single_;
  // Fetched samples; those from next_ on have not been returned yet.
  std::vector<SampledTrajectory> fetched_;
  size_t next_ = 0;
};

nb::list Peek(nb::object self, const std::string& table, int64_t n, std::optional<double> timeout) {
  ClientObject& object = nb::cast<ClientObject&>(self);
  const Client client = object.client();
  const TensorPool pool;
  std::vector<Decoded> items = ValueOrRaise(
      Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) -> Result<std::vector<Decoded>> {
        std::vector<Decoded> found;
        uint64_t cursor = 0;
        do {
          REVERB_ASSIGN_OR_RETURN(
              const std::vector<SampledTrajectory> page,
              client.Inspect(table, n - static_cast<int64_t>(found.size()), &cursor, wait));
          for (const SampledTrajectory& item : page) {
            REVERB_ASSIGN_OR_RETURN(Decoded decoded, Decode(item, pool));
            found.push_back(std::move(decoded));
          }
        } while (cursor != 0 && static_cast<int64_t>(found.size()) < n);
        return found;
      }));
  nb::list list;
  if (items.empty()) return list;
  const nb::object nest = self.attr("_signature_of")(table, timeout, true);
  const Unpacking flat;
  const Unpacking unpacking = nest.is_none() ? StructureOf(object, table) : Unpacking(nest, table);
  for (Decoded& item : items) {
    const bool fits =
        unpacking.has_names() && static_cast<size_t>(unpacking.num_columns()) == item.columns.size();
    list.append(ToTrajectory(std::move(item), fits ? unpacking : flat));
  }
  return list;
}

}  // namespace

Unpacking StructureOf(const ClientObject& client, const std::string& table) {
  // Bounds the extra call to a server that has just answered.
  constexpr std::chrono::seconds kTimeout{5};
  const Client handle = client.client();
  const Result<ItemStructure> structure =
      Waiting(kTimeout).Run([&](const WaitOptions& wait) { return handle.StructureOf(table, wait); });
  if (!structure.ok() || !*structure) return {};
  return {ToNest(ValueOrRaise(DecodeSignature(structure->encoded()))), table};
}

nb::object MakeSampleIterator(nb::object self, std::string table, int64_t num_samples, Truth emit_timesteps,
                              Truth unpack_as_table_signature, Truth exact, std::optional<double> timeout,
                              Truth names, Truth all_or_nothing, nb::handle lease) {
  using Nest = Iteration::Nest;
  const Nest nest = names.value                       ? Nest::kSignatureOrWritten
                    : unpack_as_table_signature.value ? Nest::kSignature
                                                      : Nest::kFlat;
  return nb::cast(new SampleIterator(std::move(self), std::move(table), num_samples, emit_timesteps.value,
                                     nest, exact.value, all_or_nothing.value, LeaseFromSeconds(lease),
                                     TimeoutFromSeconds(timeout)),
                  nb::rv_policy::take_ownership);
}

void BindSampler(nb::module_& module) {
  using Self = SampleIterator;
  nb::class_<Self> bound(module, "SampleIterator", nb::type_slots(CollectorSlots<Self>()),
                         "Samples, one after the other.");
  BindIteration(bound);
  module.def("_peek", &Peek, "client"_a, "table"_a, "n"_a, "timeout"_a.none());
}

}  // namespace reverb::python
