// iteration.h — the base of iterators over samples: a native sampler, a lock, close().
//
// Sends nothing to the server before the first next(). Threads may share an iterator: calls are serialized,
// and close() ends the wait of another thread.
#ifndef REVERB_PYTHON_ITERATION_H_
#define REVERB_PYTHON_ITERATION_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client.h"
#include "completions.h"
#include "errors.h"
#include "gil.h"
#include "python_api.h"
#include "reverb/sampler.h"
#include "samples.h"

namespace reverb::python {

// Returns the structure that writers sent for the items of a table; flat if it is not known.
Unpacking StructureOf(const ClientObject& client, const std::string& table);

class Iteration {
 public:
  // The columns of samples: flat; in the nest of the signature, if the table has one; or else in the nest that
  // the writers sent.
  enum class Nest { kFlat, kSignature, kSignatureOrWritten };

  Iteration(nb::object client, std::string table, Nest nest, Timeout timeout)
      : client_(std::move(client)), table_(std::move(table)), nest_(nest), timeout_(timeout) {
    (void)nb::cast<ClientObject&>(client_);  // TypeError
  }

  // May be called from any thread; ends the wait of another one.
  void Close() {
    is_closed_ = true;
    if (turn_.is_inherited()) return;  // the parent owns the stream
    const Turn::Holder turn(turn_);
    Drop();
  }

  // --- For reverb.aio, whose event loop must not wait ---
  // Asks the server about the table, which may wait. From then on next() does not wait any more: it raises
  // DeadlineExceededError. Returns False if that is not supported: the samples come from several servers.
  bool BeginAsync() {
    const Turn::Holder turn(turn_);
    if (is_closed_) return true;
    is_async_ = true;
    if (!is_started_) Start();
    if (!sampler_ || !sampler_->can_prepare()) return false;
    timeout_ = std::chrono::nanoseconds(0);
    return true;
  }
  // Returns True if next() has a sample, or has ended; otherwise a StartedCall, and puts None into the queue when it is
  // worth asking again.
  nb::object Prepare(const Completions& to, uint64_t number) {
    const Turn::Holder turn(turn_);
    const int64_t missing = is_closed_ || !sampler_ ? 0 : NumMissing();
    if (missing == 0) return nb::bool_(true);
    const bool is_ready = [&] {
      const GilRelease released;
      return sampler_->Prepare(missing, [mailbox = to.mailbox(), number] {
        (void)mailbox->Put(number, [] { return nb::object(nb::none()); });
      });
    }();
    if (is_ready) return nb::bool_(true);
    return nb::cast(new StartedCall([] {}, std::make_shared<StartedCall::Outcome>()),
                    nb::rv_policy::take_ownership);
  }

  // For the garbage collector, which calls with the GIL and never in the middle of another call.
  int Traverse(visitproc visit, void* arg) const {  // the macro needs these names
    Py_VISIT(client_.ptr());
    return 0;
  }
  void Clear() {
    is_closed_ = true;
    client_ = nb::object();
  }

 protected:
  // Creates the sampler.
  virtual void Start() = 0;
  // Returns how many samples next() needs that it does not have; 0 if it has ended.
  virtual int64_t NumMissing() const { return 1; }
  ClientObject& client() const { return nb::cast<ClientObject&>(client_); }

  // Runs take(wait) without the GIL. StopIteration if the iterator was closed meanwhile.
  template <typename Take>
  auto Await(Take&& take) {
    auto taken = Waiting(timeout_).CancelledBy(&is_closed_).Run(take);
    if (!taken.ok() && is_closed_) throw nb::stop_iteration();
    return taken;
  }
  // Uses a signature that is known already unless `fresh`: then it asks the server, and the client knows
  // the answer to MayReadAhead() as well.
  void Unpack(bool fresh) {
    if (nest_ == Nest::kFlat) return;
    const nb::object nest = client_.attr("_signature_of")(table_, Seconds(), fresh);
    unpacking_ = nest.is_none() ? Unpacking() : Unpacking(nest, table_);
  }
  // Asks the server, unless Unpack(true) has just done so.
  ReadAhead MayReadAhead() {
    if (nest_ == Nest::kFlat) client().FetchTables(timeout_);
    return client().MayReadAhead(table_);
  }
  // Fetches the structure that writers sent, if the table has no signature. Called once there are samples,
  // because then there was a writer. A failure costs no sample.
  void LearnStructure() {
    if (knows_structure_ || nest_ != Nest::kSignatureOrWritten) return;
    knows_structure_ = true;
    if (unpacking_.num_columns() == 0) structure_ = StructureOf(client(), table_);
  }
  // Flat for items with another number of columns than the structure. The table of a signature that does not fit
  // may have been replaced: asks the server.
  const Unpacking& UnpackingOf(size_t num_columns) {
    const auto fits = [&](const Unpacking& unpacking) {
      return static_cast<size_t>(unpacking.num_columns()) == num_columns;
    };
    if (fits(structure_)) return structure_;
    if (unpacking_.num_columns() > 0 && !fits(unpacking_)) [[unlikely]]
      Unpack(/*fresh=*/true);
    return unpacking_;
  }
  void Open(SamplerOptions options) {
    const Client handle = client().client();
    options.reconnect_timeout = client().reconnect_timeout();
    sampler_ = Owned<Sampler>(
        ValueOrRaise(Waiting().Run([&](const WaitOptions&) { return handle.NewSampler(options); })));
  }
  [[noreturn]] void End() {
    Drop();
    throw nb::stop_iteration();
  }
  virtual void Drop() {
    sampler_ = Owned<Sampler>();
    is_closed_ = true;
  }
  ~Iteration() = default;

  nb::object client_;
  const std::string table_;
  const Nest nest_;
  Timeout timeout_;  // changed by BeginAsync()

  Turn turn_;
  std::atomic<bool> is_closed_{false};
  // Guarded by the turn.
  bool is_started_ = false;
  bool is_async_ = false;
  Unpacking unpacking_;  // of the signature
  bool knows_structure_ = false;
  Unpacking structure_;  // of the writers, if the table has no signature
  Owned<Sampler> sampler_;

 private:
  std::optional<double> Seconds() const {
    if (!timeout_) return std::nullopt;
    return std::chrono::duration<double>(*timeout_).count();
  }
};

// Returns the type slots of an iterator class for the garbage collector.
template <typename T>
const PyType_Slot* CollectorSlots() {
  static const auto traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->Traverse(visit, arg) : 0;
  };
  static const auto clear = [](PyObject* self) -> int {
    if (nb::inst_ready(self)) nb::inst_ptr<T>(self)->Clear();
    return 0;
  };
  static const PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(static_cast<traverseproc>(traverse))},
      {Py_tp_clear, reinterpret_cast<void*>(static_cast<inquiry>(clear))},
      {0, nullptr}};
  return slots;
}

// Binds __iter__, __next__ and close().
template <typename T>
void BindIteration(nb::class_<T>& bound) {
  bound.def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &T::Next)
      .def(
          "close", [](T& self) { self.Close(); },
          "Discards prefetched samples. Later calls of next() raise StopIteration.")
      .def(
          "begin_async", [](T& self) { return self.BeginAsync(); }, "For reverb.aio.")
      .def(
          "prepare", [](T& self, const Completions& to, uint64_t number) { return self.Prepare(to, number); },
          "to"_a, "number"_a, "For reverb.aio.");
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ITERATION_H_
