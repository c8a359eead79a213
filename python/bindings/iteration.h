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

class Iteration {
 public:
  Iteration(nb::object client, std::string table, bool unpacks, Timeout timeout)
      : client_(std::move(client)), table_(std::move(table)), unpacks_(unpacks), timeout_(timeout) {
    (void)nb::cast<ClientObject&>(client_);  // TypeError
  }

  // May be called from any thread; ends the wait of another one.
  void Close() {
    is_closed_ = true;
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
  void Unpack() {
    if (!unpacks_) return;
    const nb::object nest = client_.attr("_signature_of")(table_, Seconds());
    if (!nest.is_none()) unpacking_ = Unpacking(nest, table_);
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
  const bool unpacks_;
  const Timeout timeout_;

  Turn turn_;
  std::atomic<bool> is_closed_{false};
  // Guarded by the turn.
  bool is_started_ = false;
  Unpacking unpacking_;
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
