#include "table.h"

#include <utility>

#include "client.h"
#include "errors.h"

namespace reverb::python {
namespace {

Table MakeUnserved(const TableOptions& options) {
  TableOptions own = options;
  own.extensions = {};  // an extension may serve only one table, and this one does not need it
  return ValueOrRaise(Table::Create(std::move(own), Store()));
}

bool CanDo(const TableObject& self, int32_t n, Result<bool> (Table::*question)(int64_t) const) {
  const Table table = self.table();
  return ValueOrRaise(Waiting().Run([&](const WaitOptions&) { return (table.*question)(n); }));
}

nb::bytes ToBytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

}  // namespace

TableObject::TableObject(TableOptions options) : options_(std::move(options)) {
  RaiseUnlessOk(options_.Validate());
  table_ = Owned<Table>(MakeUnserved(options_));
}

void TableObject::Serve(Table table) {
  table_ = Owned<Table>(std::move(table));
  is_served_ = true;
}

std::string TableObject::ToRepr() const {
  const TableInfo info = table_->Info();
  return "Table(sampler=" + python::ToRepr(info.sampler) + ", remover=" + python::ToRepr(info.remover) +
         ", max_size=" + std::to_string(info.max_size) +
         ", max_times_sampled=" + std::to_string(info.max_times_sampled) + ", name=" + info.name +
         ", rate_limiter=" + python::ToRepr(info.rate_limiter) +
         ", signature=" + (options_.signature ? options_.signature->ToString() : "nullptr") + ")";
}

nb::dict ToDict(const TableInfo& info) {
  nb::dict dict;
  dict["name"] = info.name;
  dict["sampler"] = nb::make_tuple(KindName(info.sampler), info.sampler.priority_exponent);
  dict["remover"] = nb::make_tuple(KindName(info.remover), info.remover.priority_exponent);
  dict["max_size"] = info.max_size;
  dict["max_times_sampled"] = info.max_times_sampled;
  dict["samples_per_insert"] = info.rate_limiter.samples_per_insert;
  dict["min_size_to_sample"] = info.rate_limiter.min_size_to_sample;
  dict["min_diff"] = info.rate_limiter.min_diff;
  dict["max_diff"] = info.rate_limiter.max_diff;
  dict["inserts"] = info.counters.inserts;
  dict["samples"] = info.counters.samples;
  dict["signature"] = ToBytes(info.signature);
  dict["current_size"] = info.current_size;
  dict["num_episodes"] = info.num_episodes;
  dict["num_deleted_episodes"] = info.num_deleted_episodes;
  dict["num_unique_samples"] = info.num_unique_samples;
  dict["inserting_ns"] = info.work_time.inserting_nanos;
  dict["sampling_ns"] = info.work_time.sampling_nanos;
  dict["waiting_for_inserts_ns"] = info.work_time.waiting_for_inserts_nanos;
  dict["waiting_for_sampling_ns"] = info.work_time.waiting_for_sampling_nanos;
  dict["idle_ns"] = info.work_time.idle_nanos;
  dict["cursor"] = info.cursor;
  dict["referenced_bytes"] = info.referenced_bytes;
  dict["evictions"] = info.evictions;
  dict["expirations"] = info.expirations;
  dict["inserts_per_second"] = info.inserts_per_second;
  dict["samples_per_second"] = info.samples_per_second;
  dict["waiting_inserts"] = info.waiting_inserts;
  dict["waiting_samples"] = info.waiting_samples;
  dict["insert_wait_reason"] = static_cast<int>(info.insert_wait_reason);
  dict["sample_wait_reason"] = static_cast<int>(info.sample_wait_reason);
  dict["longest_wait_ns"] = info.longest_wait_nanos;
  return dict;
}

void BindTable(nb::module_& module) {
  using Self = TableObject;
  nb::class_<Self>(module, "Table", nb::is_weak_referenceable(), "The native part of reverb.Table.")
      .def(
          "__init__",
          [](Self* self, std::string name, const SelectorObject& sampler, const SelectorObject& remover,
             int32_t max_size, int32_t max_times_sampled, const RateLimiterOptions& rate_limiter,
             std::optional<nb::bytes> signature) {
            TableOptions options{.name = std::move(name),
                                 .sampler = sampler.options,
                                 .remover = remover.options,
                                 .max_size = max_size,
                                 .max_times_sampled = max_times_sampled,
                                 .rate_limiter = rate_limiter};
            if (signature) {
              options.signature =
                  ValueOrRaise(DecodeSignature(std::string_view(signature->c_str(), signature->size())));
            }
            new (self) Self(std::move(options));
          },
          "name"_a, "sampler"_a, "remover"_a, "max_size"_a, "max_times_sampled"_a, "rate_limiter"_a,
          "signature"_a.none())
      .def(
          "name", [](const Self& self) { return self.options().name; }, "The table's name.")
      .def(
          "info",
          [](const Self& self) {
            const Table table = self.table();
            return ToDict(Waiting().Run([&](const WaitOptions&) { return table.Info(); }));
          },
          "A snapshot, as a dict.")
      .def(
          "can_sample", [](const Self& self, int32_t n) { return CanDo(self, n, &Table::CanSample); },
          "num_samples"_a, "Returns whether the rate limiter would admit so many samples now.")
      .def(
          "can_insert", [](const Self& self, int32_t n) { return CanDo(self, n, &Table::CanInsert); },
          "num_inserts"_a, "Returns whether the rate limiter would admit so many inserts now.")
      .def(
          "set_rate_limiter",
          [](const Self& self, const RateLimiterOptions& options) {
            Table table = self.table();
            RaiseUnlessOk(Waiting().Run([&](const WaitOptions&) { return table.SetRateLimiter(options); }));
          },
          "rate_limiter"_a, "Replaces the limiter's numbers and keeps its counters.")
      .def_prop_ro("is_served", &Self::is_served, "Whether a server serves the table.")
      .def("__repr__", &Self::ToRepr);
}

}  // namespace reverb::python
