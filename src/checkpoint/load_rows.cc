#include "checkpoint/load_rows.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

using Choice = RestoreOptions::Settings;

// Takes one setting from the side that `choice` names, and logs a difference.
template <typename T, typename Text>
void ChooseRowSetting(const std::string& table, const std::string& setting, Choice choice, const T& saved,
                      T* given, Text text) {
  if (*given == saved) return;
  Log(LogLevel::kWarning, "loading a checkpoint: row table \"" + table + "\": " + setting + " was saved as " +
                              text(saved) + " and given as " + text(*given) + "; the " +
                              (choice == Choice::kSaved ? "saved" : "given") + " one is used");
  if (choice == Choice::kSaved) *given = saved;
}

std::string StalenessText(const std::optional<StalenessOptions>& staleness) {
  if (!staleness) return "none";
  return "(max_lag " + std::to_string(staleness->max_lag) + ", " +
         std::string(WhenStaleName(staleness->when_stale)) + ", batch " + std::to_string(staleness->batch) +
         ")";
}

std::string ConsumersText(const std::vector<std::string>& consumers) {
  std::string text;
  for (const std::string& consumer : consumers) text += (text.empty() ? "\"" : ", \"") + consumer + "\"";
  return text.empty() ? "none" : "(" + text + ")";
}

RowTableOptions ChooseSettings(const RowTableOptions& saved, RowTableOptions given,
                               const RestoreOptions& options) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const std::string& name = saved.name;
  ChooseRowSetting(name, "max_rows", options.sizes, saved.max_rows, &given.max_rows, number);
  ChooseRowSetting(name, "max_running", options.sizes, saved.max_running, &given.max_running, number);
  ChooseRowSetting(name, "staleness", options.sizes, saved.staleness, &given.staleness, StalenessText);
  ChooseRowSetting(name, "drop_consumed", options.sizes, saved.drop_consumed, &given.drop_consumed, flag);
  ChooseRowSetting(name, "order", options.selectors, saved.order, &given.order,
                   [](RowOrder order) { return std::string(RowOrderName(order)); });
  ChooseRowSetting(name, "consumers", options.selectors, saved.consumers, &given.consumers, ConsumersText);
  // Groups cannot be divided anew.
  ChooseRowSetting(name, "group_size", Choice::kSaved, saved.group_size, &given.group_size, number);
  return given;
}

}  // namespace

Result<RowTablePlans> PlanRowTables(const SavedServer& saved, const std::vector<RowTableOptions>& given,
                                    const std::vector<std::string>& other_names,
                                    const RestoreOptions& options) {
  RowTablePlans all;
  all.wanted.resize(saved.row_tables.size());
  all.plan.resize(saved.row_tables.size());
  for (const RowTableOptions& table : given) {
    const auto found = std::ranges::find_if(
        saved.row_tables, [&](const SavedRowTable& each) { return each.settings.name == table.name; });
    if (found == saved.row_tables.end()) {
      if (options.missing_tables == RestoreOptions::MissingTables::kFail) {
        return Status::InvalidArgument("the checkpoint has no row table \"" + table.name +
                                       "\"; remove it, or let missing tables start empty");
      }
      Log(LogLevel::kWarning,
          "loading a checkpoint: it has no row table \"" + table.name + "\", which starts empty");
      all.plans.push_back({.options = table});
      continue;
    }
    const auto index = static_cast<size_t>(found - saved.row_tables.begin());
    if (all.wanted[index])
      return Status::InvalidArgument("the row table \"" + table.name + "\" is given twice");
    all.wanted[index] = true;
    all.plan[index] = all.plans.size();
    all.plans.push_back({.options = ChooseSettings(found->settings, table, options)});
  }
  for (size_t i = 0; i < saved.row_tables.size(); ++i) {
    if (all.wanted[i]) continue;
    const SavedRowTable& table = saved.row_tables[i];
    const std::string& name = table.settings.name;
    // Nobody gives the tables that clients created: they exist in the checkpoint only.
    const bool creates =
        options.extra_tables == RestoreOptions::ExtraTables::kFail && table.created_by_client;
    switch (creates ? RestoreOptions::ExtraTables::kCreate : options.extra_tables) {
      case RestoreOptions::ExtraTables::kFail: {
        std::string names;
        for (const RowTableOptions& each : given) names += (names.empty() ? "\"" : ", \"") + each.name + "\"";
        return Status::InvalidArgument("the checkpoint has a row table \"" + name +
                                       "\" that the server does not have; it has " +
                                       (names.empty() ? "none" : names) +
                                       ". Give the table, or choose to drop or to create such tables");
      }
      case RestoreOptions::ExtraTables::kDrop:
        Log(LogLevel::kWarning, "loading a checkpoint: row table \"" + name + "\" with its " +
                                    std::to_string(table.counts.rows) + " rows is not loaded");
        break;
      case RestoreOptions::ExtraTables::kCreate:
        if (std::ranges::find(other_names, name) != other_names.end()) {
          return Status::InvalidArgument("the checkpoint has a row table \"" + name +
                                         "\", but the server has a table of items of that name; rename it");
        }
        Log(LogLevel::kInfo,
            "loading a checkpoint: row table \"" + name + "\" is created with its saved settings");
        all.wanted[i] = true;
        all.plan[i] = all.plans.size();
        all.plans.push_back({.options = table.settings, .created_by_client = table.created_by_client});
        break;
    }
  }
  return all;
}

Result<std::vector<std::shared_ptr<ConcurrentRows>>> MakeRowTables(
    const RowTablePlans& plans, const ConcurrentRows::Environment& environment) {
  std::vector<std::shared_ptr<ConcurrentRows>> tables;
  for (const RowTablePlans::Plan& plan : plans.plans) {
    ConcurrentRows::Environment own = environment;
    own.created_by_client = plan.created_by_client;
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<ConcurrentRows> table, ConcurrentRows::Create(plan.options, own));
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace reverb::internal
