#include "config_sections.h"

#include <algorithm>
#include <utility>

namespace reverb::program {
namespace {

void ReadRowTable(ConfigReader& in, const toml::table& table, RowTableOptions* options) {
  const toml::node* const name_node = table.get("name");
  if (name_node == nullptr) {
    return in.Problem(table,
                      "key \"row_table.name\" is missing; expected a name, such as name = \"rollouts\"");
  }
  if (const auto name = in.String(*name_node, "row_table.name", "a name")) options->name = *name;
  if (options->name.empty()) in.Expected(*name_node, "row_table.name", "a name that is not empty");
  in.CheckKeys(
      table, "",
      {"name", "max_rows", "group_size", "consumers", "staleness", "order", "max_running", "drop_consumed"},
      " of row table " + Quote(options->name));
  in.CountInto(table, "max_rows", "row_table.", 1, &options->max_rows);
  in.CountInto(table, "group_size", "row_table.", 0, &options->group_size);
  in.CountInto(table, "max_running", "row_table.", 0, &options->max_running);
  in.WordInto(table, "order", "row_table.",
              {{"fifo", RowOrder::kFifo}, {"version", RowOrder::kVersion}, {"ready", RowOrder::kReady}},
              &options->order);
  if (const toml::node* node = table.get("drop_consumed")) {
    options->drop_consumed = in.Boolean(*node, "row_table.drop_consumed").value_or(true);
  }
  if (const toml::node* node = table.get("consumers")) {
    const toml::array* const names = node->as_array();
    if (names == nullptr)
      return in.Expected(*node, "row_table.consumers", "a list of names, such as [\"train\"]");
    for (const toml::node& each : *names) {
      if (const auto name = in.String(each, "row_table.consumers", "a name"))
        options->consumers.push_back(*name);
    }
  }
  if (const toml::node* node = table.get("staleness")) {
    const toml::table* const staleness = node->as_table();
    if (staleness == nullptr) {
      return in.Expected(*node, "row_table.staleness", "{ max_lag = 2, when_stale = \"drop\", batch = 64 }");
    }
    const std::string prefix = "row_table.staleness.";
    in.CheckKeys(*staleness, prefix, {"max_lag", "when_stale", "batch"}, "");
    if (staleness->get("max_lag") == nullptr) {
      return in.Problem(
          *node, "key \"row_table.staleness.max_lag\" is missing; expected a number, such as max_lag = 2");
    }
    StalenessOptions& to = options->staleness.emplace();
    in.CountInto(*staleness, "max_lag", prefix, 0, &to.max_lag);
    in.CountInto(*staleness, "batch", prefix, 0, &to.batch);
    in.WordInto(*staleness, "when_stale", prefix,
                {{"drop", WhenStale::kDrop}, {"keep", WhenStale::kKeep}, {"wait", WhenStale::kWait}},
                &to.when_stale);
  }
  if (!in.problem().ok()) return;
  if (const Status status = options->Validate(); !status.ok())
    in.Problem(table, std::string(status.message()));
}

}  // namespace

void ReadRowTables(ConfigReader& in, const toml::node& node, const ConfigTarget& to) {
  const toml::array* const tables = node.as_array();
  if (tables == nullptr || !tables->is_homogeneous(toml::node_type::table)) {
    return in.Expected(node, "row_table",
                       "row tables as [[row_table]], with two brackets, each with a unique name");
  }
  for (const toml::node& entry : *tables) {
    RowTableOptions table;
    ReadRowTable(in, *entry.as_table(), &table);
    if (!in.problem().ok()) return;
    const auto has_name = [&](const auto& other) { return other.name == table.name; };
    if (std::ranges::any_of(to.options->row_tables, has_name) ||
        std::ranges::any_of(to.options->tables, has_name)) {
      in.Problem(*entry.as_table()->get("name"), "key \"row_table.name\": there are two tables named " +
                                                     Quote(table.name) + "; each needs a unique name");
    }
    to.options->row_tables.push_back(std::move(table));
  }
}

}  // namespace reverb::program
