// Selectors and rate limiters: values that configure a table.
#include <nanobind/operators.h>

#include <cstdio>
#include <string>

#include "errors.h"
#include "python_api.h"
#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "table.h"

namespace reverb::python {
namespace {

// At most six significant digits.
std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// One class for each kind, so that isinstance() distinguishes them.
struct FifoSelector : SelectorObject {};
struct LifoSelector : SelectorObject {};
struct UniformSelector : SelectorObject {};
struct HeapSelector : SelectorObject {};
struct PrioritizedSelector : SelectorObject {};

template <typename T>
void Init(T* self, SelectorOptions options) {
  RaiseUnlessOk(options.Validate());
  new (self) T{{std::move(options)}};
}

}  // namespace

std::string ToRepr(const SelectorOptions& options) {
  using Kind = SelectorOptions::Kind;
  switch (options.kind) {
    case Kind::kFifo:
      return "FifoSelector";
    case Kind::kLifo:
      return "LifoSelector";
    case Kind::kUniform:
      return "UniformSelector";
    case Kind::kMinHeap:
      return "HeapSelector(sign=1)";
    case Kind::kMaxHeap:
      return "HeapSelector(sign=-1)";
    case Kind::kPrioritized:
      return "PrioritizedSelector(priority_exponent=" + Short(options.priority_exponent) + ")";
    case Kind::kCustom:
      return options.custom_name;
  }
  return "Selector";
}

std::string ToRepr(const RateLimiterOptions& options) {
  // dm-reverb's name.
  return "RateLimiter(samples_per_insert=" + Short(options.samples_per_insert) +
         ", min_diff_=" + Short(options.min_diff) + ", max_diff=" + Short(options.max_diff) +
         ", min_size_to_sample=" + std::to_string(options.min_size_to_sample) + ")";
}

std::string KindName(const SelectorOptions& options) {
  using Kind = SelectorOptions::Kind;
  switch (options.kind) {
    case Kind::kFifo:
      return "fifo";
    case Kind::kLifo:
      return "lifo";
    case Kind::kUniform:
      return "uniform";
    case Kind::kMinHeap:
      return "min_heap";
    case Kind::kMaxHeap:
      return "max_heap";
    case Kind::kPrioritized:
      return "prioritized";
    case Kind::kCustom:
      return "custom";
  }
  return "custom";
}

void BindSelectors(nb::module_& module) {
  nb::class_<SelectorObject>(module, "ItemSelector",
                             "A way to choose items of a table. A value: each table makes its own.")
      .def("__repr__", [](const SelectorObject& self) { return ToRepr(self.options); })
      .def_prop_ro(
          "kind", [](const SelectorObject& self) { return KindName(self.options); },
          "fifo, lifo, uniform, min_heap, max_heap or prioritized.")
      .def_prop_ro(
          "priority_exponent", [](const SelectorObject& self) { return self.options.priority_exponent; },
          "Of a prioritized selector.")
      .def_prop_ro(
          "seed", [](const SelectorObject& self) { return self.options.seed; },
          "What makes its choices reproducible; None: from the system's entropy.")
      .def(
          "__eq__",
          [](const SelectorObject& self, const SelectorObject& other) {
            return self.options == other.options;
          },
          nb::is_operator())
      .def("__hash__",
           [](const SelectorObject& self) { return std::hash<std::string>()(ToRepr(self.options)); })
      .def("__reduce__", [](const SelectorObject& self) {
        static Lazy rebuild("reverb.item_selectors", "_rebuild");
        return nb::make_tuple(
            rebuild.get(),
            nb::make_tuple(KindName(self.options), self.options.priority_exponent, self.options.seed));
      });
  nb::class_<FifoSelector, SelectorObject>(module, "FifoSelector", "The oldest item.")
      .def("__init__", [](FifoSelector* self) { Init(self, SelectorOptions::Fifo()); });
  nb::class_<LifoSelector, SelectorObject>(module, "LifoSelector", "The newest item.")
      .def("__init__", [](LifoSelector* self) { Init(self, SelectorOptions::Lifo()); });
  nb::class_<UniformSelector, SelectorObject>(module, "UniformSelector",
                                              "Any item, each as likely as the others.")
      .def(
          "__init__",
          [](UniformSelector* self, std::optional<uint64_t> seed) {
            Init(self, SelectorOptions::Uniform(seed));
          },
          nb::kw_only(), "seed"_a = nb::none());
  nb::class_<HeapSelector, SelectorObject>(module, "HeapSelector",
                                           "The item of lowest, or of highest, priority.")
      .def(
          "__init__",
          [](HeapSelector* self, bool min_heap) {
            Init(self, min_heap ? SelectorOptions::MinHeap() : SelectorOptions::MaxHeap());
          },
          "min_heap"_a = true);
  nb::class_<PrioritizedSelector, SelectorObject>(
      module, "PrioritizedSelector", "With probability in proportion to priority ** priority_exponent.")
      .def(
          "__init__",
          [](PrioritizedSelector* self, double priority_exponent, std::optional<uint64_t> seed) {
            Init(self, SelectorOptions::Prioritized(priority_exponent, seed));
          },
          "priority_exponent"_a, nb::kw_only(), "seed"_a = nb::none());

  nb::class_<RateLimiterOptions>(module, "RateLimiter",
                                 "Keeps samples per insert near a target by making callers wait. A value.")
      .def(
          "__init__",
          [](RateLimiterOptions* self, double samples_per_insert, int32_t min_size_to_sample, double min_diff,
             double max_diff) {
            const RateLimiterOptions options{.samples_per_insert = samples_per_insert,
                                             .min_size_to_sample = min_size_to_sample,
                                             .min_diff = min_diff,
                                             .max_diff = max_diff};
            RaiseUnlessOk(options.Validate());
            new (self) RateLimiterOptions(options);
          },
          "samples_per_insert"_a, "min_size_to_sample"_a, "min_diff"_a, "max_diff"_a)
      .def_ro("samples_per_insert", &RateLimiterOptions::samples_per_insert,
              "How far an insert moves the cursor up; a sample moves it down by one.")
      .def_ro("min_size_to_sample", &RateLimiterOptions::min_size_to_sample,
              "How many items the table must have before anything is sampled.")
      .def_ro("min_diff", &RateLimiterOptions::min_diff,
              "Samples that would move the cursor below this wait.")
      .def_ro("max_diff", &RateLimiterOptions::max_diff,
              "Inserts that would move the cursor above this wait.")
      .def(
          "__eq__", [](const RateLimiterOptions& a, const RateLimiterOptions& b) { return a == b; },
          nb::is_operator())
      .def("__hash__", [](const RateLimiterOptions& self) { return std::hash<std::string>()(ToRepr(self)); })
      .def("__repr__", [](const RateLimiterOptions& self) { return ToRepr(self); });
}

}  // namespace reverb::python
