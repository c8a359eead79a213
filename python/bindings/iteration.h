// iteration.h — the base of iterators over samples: a native sampler, a lock, close().
//
// Sends nothing to the server before the first next(). Threads may share an iterator: calls are serialized,
// and close() ends the wait of another thread.
#ifndef REVERB_PYTHON_ITERATION_H_
#define REVERB_PYTHON_ITERATION_H_

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "client.h"
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
  const Timeout timeout_;

  Turn turn_;
  std::atomic<bool> is_closed_{false};
  // Guarded by the turn.
  bool is_started_ = false;
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
          "Discards prefetched samples. Later calls of next() raise StopIteration.");
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_ITERATION_H_
