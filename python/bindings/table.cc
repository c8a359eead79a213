#include "table.h"

#include <array>
#include <chrono>
#include <ranges>
#include <type_traits>
#include <utility>

#include "client.h"
#include "errors.h"
#include "reverb/server_info_fields.h"

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

// "1.5", as Python writes it.
std::string SecondsText(int64_t nanos) {
  return nb::cast<std::string>(nb::repr(nb::float_(static_cast<double>(nanos) / 1e9)));
}

template <HasFields Record>
nb::dict FieldsToDict(const Record& record);

template <typename T>
nb::object ToPython(FieldKind kind, const T& value) {
  if constexpr (std::is_same_v<T, SelectorOptions>) {
    return nb::make_tuple(KindName(value), value.priority_exponent);
  } else if constexpr (HasFields<T>) {
    return FieldsToDict(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    // Names may be any bytes that another process has sent.
    return kind == FieldKind::kBytes ? nb::object(nb::bytes(value.data(), value.size())) : Text(value);
  } else if constexpr (std::is_same_v<T, std::array<uint8_t, 16>>) {
    return nb::bytes(value.data(), value.size());
  } else if constexpr (std::ranges::range<T>) {
    nb::list list;
    for (const auto& each : value) list.append(ToPython(kind, each));
    return list;
  } else if constexpr (std::is_same_v<T, LayoutPolicy>) {
    return Text(LayoutPolicyName(value));
  } else if constexpr (std::is_same_v<T, RowOrder>) {
    return Text(RowOrderName(value));
  } else if constexpr (std::is_same_v<T, WhenStale>) {
    return Text(WhenStaleName(value));
  } else if constexpr (std::is_enum_v<T>) {
    return nb::cast(static_cast<int>(value));
  } else if constexpr (requires { value.has_value(); }) {
    return value ? ToPython(kind, *value) : nb::none();
  } else {
    return nb::cast(value);
  }
}

template <HasFields Record>
nb::dict FieldsToDict(const Record& record) {
  nb::dict dict;
  ForEachField<Record>([&](const auto& field) {
    const nb::object value = ToPython(field.kind, field(record));
    if (field.is_flat) {
      dict.update(nb::borrow<nb::dict>(value));
    } else {
      dict[field.name] = value;
    }
  });
  return dict;
}

LayoutPolicy LayoutFromName(std::string_view name) {
  for (const LayoutPolicy policy : {LayoutPolicy::kFirst, LayoutPolicy::kAny}) {
    if (name == LayoutPolicyName(policy)) return policy;
  }
  RaiseValueError("layout ('" + std::string(name) + "') must be 'first' or 'any'");
}

}  // namespace

TableObject::TableObject(TableOptions options) : options_(std::move(options)) {
  RaiseUnlessOk(options_.Validate());
  table_ = Owned<Table>(MakeUnserved(options_));
}

void TableObject::Serve(Table table) {
  table_ = Owned<Table>(std::move(table));
  is_served_ = true;
  origin_ = Origin();
}

std::string TableObject::ToRepr() const {
  const TableInfo info = table_->Info();
  return "Table(sampler=" + python::ToRepr(info.sampler) + ", remover=" + python::ToRepr(info.remover) +
         ", max_size=" + std::to_string(info.max_size) +
         ", max_times_sampled=" + std::to_string(info.max_times_sampled) + ", name=" + info.name +
         ", rate_limiter=" + python::ToRepr(info.rate_limiter) +
         ", signature=" + (options_.signature ? options_.signature->ToString() : "nullptr") +
         (info.max_age_nanos > 0 ? ", max_age=" + SecondsText(info.max_age_nanos) : "") +
         (info.max_bytes > 0 ? ", max_bytes=" + std::to_string(info.max_bytes) : "") + ")";
}

nb::dict ToDict(const TableInfo& info) { return FieldsToDict(info); }
nb::dict ToDict(const ServerInfo& info) { return FieldsToDict(info); }
nb::dict ToDict(const RowTableInfo& info) { return FieldsToDict(info); }

void BindTable(nb::module_& module) {
  using Self = TableObject;
  nb::class_<Self>(module, "Table", nb::is_weak_referenceable(), "The native part of reverb.Table.")
      .def(
          "__init__",
          [](Self* self, std::string name, const SelectorObject& sampler, const SelectorObject& remover,
             int32_t max_size, int32_t max_times_sampled, const RateLimiterOptions& rate_limiter,
             std::optional<nb::bytes> signature, std::string_view layout, int64_t max_age_nanos,
             int64_t max_bytes) {
            TableOptions options{.name = std::move(name),
                                 .sampler = sampler.options,
                                 .remover = remover.options,
                                 .max_size = max_size,
                                 .max_times_sampled = max_times_sampled,
                                 .max_age = std::chrono::nanoseconds(max_age_nanos),
                                 .max_bytes = max_bytes,
                                 .rate_limiter = rate_limiter,
                                 .layout = LayoutFromName(layout)};
            if (signature) {
              options.signature =
                  ValueOrRaise(DecodeSignature(std::string_view(signature->c_str(), signature->size())));
            }
            new (self) Self(std::move(options));
          },
          "name"_a, "sampler"_a, "remover"_a, "max_size"_a, "max_times_sampled"_a, "rate_limiter"_a,
          "signature"_a.none(), "layout"_a = "first", "max_age_nanos"_a = 0, "max_bytes"_a = 0)
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
