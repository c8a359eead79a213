// Samples as Python sees them: what Client.sample() returns.
#include "reverb/sampler.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "client.h"
#include "errors.h"
#include "gil.h"
#include "python_api.h"
#include "tree.h"

namespace reverb::python {
namespace {

// Samples that are fetched ahead at most, when the caller takes them as fast as they come.
constexpr int64_t kMostAhead = 64;

Lazy sample_info_type("reverb.replay_sample", "SampleInfo");
Lazy replay_sample_type("reverb.replay_sample", "ReplaySample");

// A sample with its data decoded, which needs no GIL.
struct Decoded {
  uint64_t key = 0;
  double probability = 0;
  int64_t table_size = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  std::vector<Tensor> columns;
  bool has_squeezed = false;
};

Result<Decoded> Decode(const SampledTrajectory& sample) {
  Decoded decoded{.key = sample.key(),
                  .probability = sample.probability(),
                  .table_size = sample.table_size(),
                  .priority = sample.priority(),
                  .times_sampled = sample.times_sampled()};
  decoded.columns.reserve(sample.num_columns());
  for (uint32_t i = 0; i < sample.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(Tensor column, sample.column(i));
    decoded.columns.push_back(std::move(column));
    decoded.has_squeezed = decoded.has_squeezed || sample.is_squeezed(i);
  }
  return decoded;
}

// A namedtuple of these fields, without going through its __new__.
nb::object MakeNamedTuple(nb::handle type, std::initializer_list<PyObject*> fields) {
  const nb::object values = Own(PyTuple_New(static_cast<Py_ssize_t>(fields.size())));
  Py_ssize_t i = 0;
  for (PyObject* field : fields) {
    if (field == nullptr) nb::raise_python_error();
    PyTuple_SET_ITEM(values.ptr(), i++, field);
  }
  const nb::object arguments = Own(PyTuple_Pack(1, values.ptr()));
  return Own(PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type.ptr()), arguments.ptr(), nullptr));
}

nb::object MakeInfo(const Decoded& sample) {
  return MakeNamedTuple(sample_info_type.get(),
                        {PyLong_FromUnsignedLongLong(sample.key), PyFloat_FromDouble(sample.probability),
                         PyLong_FromLongLong(sample.table_size), PyFloat_FromDouble(sample.priority),
                         PyLong_FromLong(sample.times_sampled)});
}

nb::object MakeSample(nb::handle info, nb::object data) {
  return MakeNamedTuple(replay_sample_type.get(), {info.inc_ref().ptr(), data.release().ptr()});
}

// How the columns of samples are handed out: flat, or in the nest of the table's signature.
class Unpacking {
 public:
  Unpacking() = default;
  // A nest with a leaf for each column.
  Unpacking(nb::handle nest, std::string table)
      : structure_(Structure().Merged(nest.ptr())), table_(std::move(table)) {}

  nb::object Pack(std::vector<nb::object> columns) const {
    if (structure_.empty()) {
      const nb::object list = Own(PyList_New(static_cast<Py_ssize_t>(columns.size())));
      for (size_t i = 0; i < columns.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), columns[i].release().ptr());
      }
      return list;
    }
    if (columns.size() != static_cast<size_t>(structure_.num_columns())) {
      RaiseValueError("an item of table \"" + table_ + "\" has " + std::to_string(columns.size()) +
                      " columns but the table's signature has " + std::to_string(structure_.num_columns()));
    }
    return structure_.Build([&](int32_t column) { return columns[static_cast<size_t>(column)]; });
  }

 private:
  Structure structure_;
  std::string table_;
};

std::vector<nb::object> ToArrays(Decoded sample) {
  std::vector<nb::object> arrays;
  arrays.reserve(sample.columns.size());
  for (Tensor& column : sample.columns) arrays.push_back(ToNumpy(std::move(column)));
  return arrays;
}

nb::object ToTrajectory(Decoded sample, const Unpacking& unpacking) {
  const nb::object info = MakeInfo(sample);
  return MakeSample(info, unpacking.Pack(ToArrays(std::move(sample))));
}

// One ReplaySample for each step.
nb::object ToTimesteps(Decoded sample, const Unpacking& unpacking) {
  std::optional<int64_t> steps;
  for (const Tensor& column : sample.columns) {
    const bool has_time = !sample.has_squeezed && !column.dims().empty();
    if (!has_time || (steps && *steps != column.dims()[0])) {
      RaiseValueError(
          "Can't split non timestep trajectory into timesteps. All columns must have the same number of "
          "steps, and "
          "none may be squeezed; use emit_timesteps=False for this table.");
    }
    steps = column.dims()[0];
  }
  const nb::object info = MakeInfo(sample);
  const std::vector<nb::object> arrays = ToArrays(std::move(sample));
  const nb::object list = Own(PyList_New(static_cast<Py_ssize_t>(steps.value_or(0))));
  for (int64_t i = 0; i < steps.value_or(0); ++i) {
    const nb::object index = nb::make_tuple(i, nb::ellipsis());  // arrays also where a row is a scalar
    std::vector<nb::object> rows;
    rows.reserve(arrays.size());
    for (const nb::object& array : arrays) rows.push_back(Own(PyObject_GetItem(array.ptr(), index.ptr())));
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i),
                    MakeSample(info, unpacking.Pack(std::move(rows))).release().ptr());
  }
  return list;
}

// --- The iterator ---

class SampleIterator {
 public:
  SampleIterator(nb::object client, std::string table, int64_t num_samples, bool emit_timesteps,
                 nb::object signature, bool exact, Timeout timeout)
      : client_(std::move(client)),
        table_(std::move(table)),
        num_samples_(num_samples),
        emit_timesteps_(emit_timesteps),
        signature_(std::move(signature)),
        exact_(exact),
        timeout_(timeout) {}

  nb::object Next() {
    CheckFork();
    const Turn::Holder turn(turn_);
    if (is_closed_) throw nb::stop_iteration();
    if (!is_started_) Start();
    if (num_samples_ < 0 || taken_ >= num_samples_) {
      Drop();
      throw nb::stop_iteration();
    }
    Result<Decoded> sample =
        Waiting(timeout_).CancelledBy(&is_closed_).Run([&](const WaitOptions& wait) { return Take(wait); });
    if (!sample.ok() && is_closed_) throw nb::stop_iteration();
    Decoded decoded = ValueOrRaise(std::move(sample));
    ++taken_;
    if (emit_timesteps_) return ToTimesteps(std::move(decoded), unpacking_);
    return ToTrajectory(std::move(decoded), unpacking_);
  }

  // For the garbage collector, which asks with the GIL and never in the middle of a call.
  int Traverse(visitproc visit, void* arg) const {  // the macros need these names
    Py_VISIT(client_.ptr());
    Py_VISIT(signature_.ptr());
    return 0;
  }
  void Clear() {
    is_closed_ = true;
    client_ = nb::object();
    signature_ = nb::object();
  }

  // From any thread; ends the wait of another.
  void Close() {
    is_closed_ = true;
    const Turn::Holder turn(turn_);
    Drop();
  }

 private:
  void Start() {
    if (num_samples_ == 0 || num_samples_ < -1) {
      RaiseValueError("max_samples (" + std::to_string(num_samples_) + ") must be -1 or >= 1");
    }
    // A nest, or a function that finds it out.
    nb::object nest = signature_;
    if (PyCallable_Check(nest.ptr())) nest = nest();
    if (!nest.is_none()) unpacking_ = Unpacking(nest, table_);
    ClientObject& client = nb::cast<ClientObject&>(client_);
    if (num_samples_ > 1) {
      const bool may_read_ahead = client.MayReadAhead(table_, timeout_);
      const Client handle = client.client();
      const SamplerOptions options{
          .table = table_,
          .max_samples = num_samples_,
          .max_in_flight_samples_per_worker = may_read_ahead ? std::min(kMostAhead, num_samples_) : 1,
          .grow_window = true,
          .exact = exact_};
      sampler_ = Owned<Sampler>(
          ValueOrRaise(Waiting().Run([&](const WaitOptions&) { return handle.NewSampler(options); })));
    } else if (num_samples_ == 1) {
      single_ = Owned<Client>(client.client());
    }
    is_started_ = true;
  }

  // Without the GIL.
  Result<Decoded> Take(const WaitOptions& wait) {
    if (sampler_) {
      REVERB_ASSIGN_OR_RETURN(const SampledTrajectory sample, sampler_->Next(wait));
      return Decode(sample);
    }
    REVERB_ASSIGN_OR_RETURN(const std::vector<SampledTrajectory> one, single_->Sample(table_, 1, wait));
    return Decode(one.front());
  }

  void Drop() {
    sampler_ = Owned<Sampler>();
    single_ = Owned<Client>();
    is_closed_ = true;
  }

  nb::object client_;
  const std::string table_;
  const int64_t num_samples_;
  const bool emit_timesteps_;
  nb::object signature_;
  const bool exact_;
  const Timeout timeout_;

  Turn turn_;
  std::atomic<bool> is_closed_{false};
  // In turn.
  bool is_started_ = false;
  int64_t taken_ = 0;
  Unpacking unpacking_;
  Owned<Sampler> sampler_;
  Owned<Client> single_;
};

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<SampleIterator>(self)->Traverse(visit, arg) : 0;
}

int Clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<SampleIterator>(self)->Clear();
  return 0;
}

const PyType_Slot iterator_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                                      {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                                      {0, nullptr}};

nb::list Peek(ClientObject& self, std::string_view table, int64_t n, std::optional<double> timeout) {
  const Client client = self.client();
  std::vector<Decoded> items = ValueOrRaise(
      Waiting(TimeoutFromSeconds(timeout)).Run([&](const WaitOptions& wait) -> Result<std::vector<Decoded>> {
        std::vector<Decoded> found;
        uint64_t cursor = 0;
        do {
          REVERB_ASSIGN_OR_RETURN(
              const std::vector<SampledTrajectory> page,
              client.Inspect(table, n - static_cast<int64_t>(found.size()), &cursor, wait));
          for (const SampledTrajectory& item : page) {
            REVERB_ASSIGN_OR_RETURN(Decoded decoded, Decode(item));
            found.push_back(std::move(decoded));
          }
        } while (cursor != 0 && static_cast<int64_t>(found.size()) < n);
        return found;
      }));
  nb::list list;
  const Unpacking flat;
  for (Decoded& item : items) list.append(ToTrajectory(std::move(item), flat));
  return list;
}

}  // namespace

void BindSampler(nb::module_& module) {
  using Self = SampleIterator;
  nb::class_<Self>(module, "SampleIterator", nb::type_slots(iterator_slots),
                   "Samples, one after the other. Nothing is asked of the server before the first next().")
      .def(
          "__init__",
          [](Self* self, nb::object client, std::string table, int64_t num_samples, Truth emit_timesteps,
             nb::object signature, Truth exact, std::optional<double> timeout) {
            (void)nb::cast<ClientObject&>(client);
            new (self) Self(std::move(client), std::move(table), num_samples, emit_timesteps.value,
                            std::move(signature), exact.value, TimeoutFromSeconds(timeout));
          },
          "client"_a, "table"_a, "num_samples"_a, "emit_timesteps"_a, "signature"_a.none(), "exact"_a,
          "timeout"_a.none())
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Self::Next)
      .def("close", &Self::Close,
           "Gives up what was fetched ahead. Later calls of next() raise StopIteration.");
  module.def("_peek", &Peek, "client"_a, "table"_a, "n"_a, "timeout"_a.none());
}

}  // namespace reverb::python
