#include "checkpoint/load.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/log.h"
#include "checkpoint/layout.h"
#include "checkpoint/load_rows.h"
#include "checkpoint/reverb_source.h"
#include "reverb/signature.h"

namespace reverb::internal {
namespace {

using Settings = RestoreOptions::Settings;

// One table: its options, and the part of the saved state that it restores.
struct Plan {
  TableOptions options;
  SavedTableState state;
};

void LogDifference(const std::string& table, const std::string& setting, const std::string& saved,
                   const std::string& given, Settings choice) {
  Log(LogLevel::kWarning, "loading a checkpoint: table \"" + table + "\": " + setting + " was saved as " +
                              saved + " and given as " + given + "; the " +
                              (choice == Settings::kSaved ? "saved" : "given") + " one is used");
}

// Takes one setting from the side that `choice` names, and logs a difference.
template <typename T, typename Text>
void Choose(const std::string& table, const std::string& setting, Settings choice, const T& saved, T* given,
            Text text) {
  if (*given == saved) return;
  LogDifference(table, setting, text(saved), text(*given), choice);
  if (choice == Settings::kSaved) *given = saved;
}

std::string SelectorText(const SelectorOptions& options, bool is_custom) {
  return is_custom && options.kind != SelectorOptions::Kind::kCustom ? "custom" : options.ToString();
}

// `state`: the saved selector's state, which is cleared when a selector of another kind replaces it.
void ChooseSelector(const std::string& table, const std::string& role, Settings choice,
                    const SelectorOptions& saved, SelectorOptions* given,
                    std::function<std::unique_ptr<Selector>()>* custom, std::string* state) {
  constexpr auto kCustom = SelectorOptions::Kind::kCustom;
  const bool given_custom = static_cast<bool>(*custom) || given->kind == kCustom;
  if (saved.kind == kCustom) {
    if (given_custom) return;  // a custom selector continues from its state
    Log(LogLevel::kWarning, "loading a checkpoint: table \"" + table + "\": its " + role +
                                " was saved as a custom selector (" + saved.ToString() +
                                "), which is not given; using " + given->ToString() + " instead");
    state->clear();
    return;
  }
  const bool is_same = !given_custom && SelectTheSame(saved, *given);
  if (!is_same) {
    LogDifference(table, role, saved.ToString(), SelectorText(*given, given_custom), choice);
  }
  if (choice == Settings::kSaved) {
    *given = saved;
    *custom = {};
  } else if (!is_same) {
    state->clear();
  }
}

std::string SignatureText(const std::optional<Signature>& signature) {
  return signature ? signature->ToString() : "none";
}

void LogExtensionDifferences(const TableOptions& options, const SavedTableState& state) {
  std::multiset<std::string> saved;
  for (const auto& [name, bytes] : state.extension_states) saved.insert(name);
  for (const auto& extension : options.extensions) {
    const auto found = saved.find(extension->name());
    if (found != saved.end()) {
      saved.erase(found);
      continue;
    }
    Log(LogLevel::kWarning, "loading a checkpoint: table \"" + options.name + "\": extension \"" +
                                extension->name() + "\" has no saved state; it starts empty");
  }
  for (const std::string& name : saved) {
    Log(LogLevel::kWarning, "loading a checkpoint: table \"" + options.name + "\": extension \"" + name +
                                "\" was saved, but is not given; its state is dropped");
  }
}

Result<std::optional<Signature>> SavedSignature(const SavedTable& saved) {
  if (saved.signature.empty()) return std::optional<Signature>();
  REVERB_ASSIGN_OR_RETURN(Signature signature, DecodeSignature(saved.signature));
  return std::optional<Signature>(std::move(signature));
}

Result<Plan> MakePlan(const SavedTable& saved, TableOptions given, const RestoreOptions& options) {
  const std::string& name = saved.name;
  const auto number = [](int64_t value) { return std::to_string(value); };
  Plan plan{.options = std::move(given), .state = saved.state};
  TableOptions& to = plan.options;
  Choose(name, "max_size", options.sizes, saved.max_size, &to.max_size, number);
  Choose(name, "max_times_sampled", options.sizes, saved.max_times_sampled, &to.max_times_sampled, number);
  if (saved.knows_layout_and_age) {
    Choose(name, "max_age", options.sizes, Duration(saved.max_age_nanos), &to.max_age,
           [](Duration age) { return std::to_string(std::chrono::duration<double>(age).count()) + " s"; });
    Choose(name, "layout", options.signature, saved.layout, &to.layout,
           [](LayoutPolicy layout) { return std::string(LayoutPolicyName(layout)); });
  }
  if (saved.knows_max_bytes) Choose(name, "max_bytes", options.sizes, saved.max_bytes, &to.max_bytes, number);
  Choose(name, "the rate limiter", options.rate_limiter, saved.rate_limiter, &to.rate_limiter,
         [](const RateLimiterOptions& limiter) { return "(" + limiter.ToString() + ")"; });
  REVERB_ASSIGN_OR_RETURN(const std::optional<Signature> signature, SavedSignature(saved));
  Choose(name, "the signature", options.signature, signature, &to.signature, SignatureText);
  ChooseSelector(name, "sampler", options.selectors, saved.sampler, &to.sampler, &to.custom_sampler,
                 &plan.state.sampler_state);
  ChooseSelector(name, "remover", options.selectors, saved.remover, &to.remover, &to.custom_remover,
                 &plan.state.remover_state);
  LogExtensionDifferences(to, plan.state);
  if (options.counters == RestoreOptions::Counters::kReset) {
    plan.state.counters = {.inserts = saved.size};
  }
  return plan;
}

std::string Names(const std::vector<TableOptions>& tables) {
  std::string names;
  for (const TableOptions& table : tables) names += (names.empty() ? "\"" : ", \"") + table.name + "\"";
  return names.empty() ? "none" : names;
}

// The tables to create, and which of them are filled from which table of the checkpoint.
struct Plans {
  std::vector<Plan> plans;
  std::vector<bool> wanted;                 // by table of the checkpoint
  std::vector<std::optional<size_t>> plan;  // likewise: index into `plans`
};

Result<Plans> PlanTables(const SavedServer& saved, const std::vector<TableOptions>& given,
                         const RestoreOptions& options) {
  Plans all;
  all.wanted.resize(saved.tables.size());
  all.plan.resize(saved.tables.size());
  for (const TableOptions& table : given) {
    const auto found = std::ranges::find(saved.tables, table.name, &SavedTable::name);
    if (found == saved.tables.end()) {
      if (options.missing_tables == RestoreOptions::MissingTables::kFail) {
        return Status::InvalidArgument("the checkpoint has no table \"" + table.name +
                                       "\"; remove it, or let missing tables start empty");
      }
      Log(LogLevel::kWarning,
          "loading a checkpoint: it has no table \"" + table.name + "\", which starts empty");
      all.plans.push_back({.options = table, .state = {}});
      continue;
    }
    const auto index = static_cast<size_t>(found - saved.tables.begin());
    REVERB_ASSIGN_OR_RETURN(Plan plan, MakePlan(*found, table, options));
    all.wanted[index] = true;
    all.plan[index] = all.plans.size();
    all.plans.push_back(std::move(plan));
  }
  for (size_t i = 0; i < saved.tables.size(); ++i) {
    if (all.wanted[i]) continue;
    const std::string& name = saved.tables[i].name;
    // Nobody gives the tables that clients created: they exist in the checkpoint only.
    const bool creates =
        options.extra_tables == RestoreOptions::ExtraTables::kFail && saved.tables[i].created_by_client;
    switch (creates ? RestoreOptions::ExtraTables::kCreate : options.extra_tables) {
      case RestoreOptions::ExtraTables::kFail:
        return Status::InvalidArgument("the checkpoint has a table \"" + name +
                                       "\" that the server does not have; it has " + Names(given) +
                                       ". Give the table, or choose to drop or to create such tables");
      case RestoreOptions::ExtraTables::kDrop:
        Log(LogLevel::kWarning, "loading a checkpoint: table \"" + name + "\" with its " +
                                    std::to_string(saved.tables[i].size) + " items is not loaded");
        break;
      case RestoreOptions::ExtraTables::kCreate:
        Log(LogLevel::kInfo,
            "loading a checkpoint: table \"" + name + "\" is created with its saved settings");
        all.wanted[i] = true;
        all.plan[i] = all.plans.size();
        REVERB_ASSIGN_OR_RETURN(TableOptions as_saved, TableOptions::FromSettings(saved.tables[i]));
        REVERB_ASSIGN_OR_RETURN(Plan plan, MakePlan(saved.tables[i], std::move(as_saved), options));
        all.plans.push_back(std::move(plan));
        break;
    }
  }
  return all;
}

}  // namespace

Result<std::vector<std::shared_ptr<ConcurrentTable>>> MakeTables(
    const std::vector<TableOptions>& given, const ConcurrentTable::Environment& environment) {
  std::vector<std::shared_ptr<ConcurrentTable>> tables;
  for (const TableOptions& options : given) {
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<ConcurrentTable> table,
                            ConcurrentTable::Create(options, environment));
    tables.push_back(std::move(table));
  }
  return tables;
}

Result<LoadedServer> MakeEmpty(const std::vector<TableOptions>& given,
                               const std::vector<RowTableOptions>& given_rows,
                               const ConcurrentTable::Environment& environment) {
  LoadedServer empty;
  REVERB_ASSIGN_OR_RETURN(empty.tables, MakeTables(given, environment));
  RowTablePlans plans;
  for (const RowTableOptions& rows : given_rows) plans.plans.push_back({.options = rows});
  REVERB_ASSIGN_OR_RETURN(empty.row_tables,
                          MakeRowTables(plans, {.store = environment.store, .clock = environment.clock}));
  return empty;
}

Result<LoadedServer> LoadFrom(CheckpointSource& source, const std::vector<TableOptions>& given,
                              const RestoreOptions& options, const ConcurrentTable::Environment& environment,
                              const std::vector<RowTableOptions>& given_rows) {
  const SavedServer& saved = source.server();
  REVERB_ASSIGN_OR_RETURN(Plans all, PlanTables(saved, given, options));
  LoadedServer loaded;
  std::vector<std::string> names;
  for (const Plan& plan : all.plans) names.push_back(plan.options.name);
  REVERB_ASSIGN_OR_RETURN(const RowTablePlans row_plans, PlanRowTables(saved, given_rows, names, options));
  const WantedTables wanted{.tables = all.wanted, .row_tables = row_plans.wanted};
  REVERB_RETURN_IF_ERROR(
      CheckRoomToLoad(source.MinMemoryBytes(wanted), source.Info().path, *environment.store));
  REVERB_ASSIGN_OR_RETURN(loaded.row_tables,
                          MakeRowTables(row_plans, {.store = environment.store, .clock = environment.clock}));
  const auto rows_of = [&](size_t row_table) -> ConcurrentRows& {
    return *loaded.row_tables[*row_plans.plan[row_table]];
  };
  for (size_t i = 0; i < saved.row_tables.size(); ++i) {
    if (row_plans.wanted[i]) REVERB_RETURN_IF_ERROR(rows_of(i).BeginRestore(saved.row_tables[i]));
  }
  for (const Plan& plan : all.plans) {
    REVERB_ASSIGN_OR_RETURN(std::shared_ptr<ConcurrentTable> table,
                            ConcurrentTable::Create(plan.options, environment));
    loaded.tables.push_back(std::move(table));
  }
  std::vector<ConcurrentTable*> by_saved(saved.tables.size());
  for (size_t i = 0; i < saved.tables.size(); ++i) {
    if (!all.wanted[i]) continue;
    by_saved[i] = loaded.tables[*all.plan[i]].get();
    by_saved[i]->BeginRestore(saved.tables[i].state.num_slots, static_cast<uint64_t>(saved.tables[i].size));
  }
  // A few at a time: their memory is prefetched together.
  constexpr size_t kItemsAtATime = 64;
  std::vector<SavedItem> items;
  items.reserve(kItemsAtATime);
  size_t items_table = 0;
  constexpr std::chrono::milliseconds kAskEvery(50);
  auto ask_at = std::chrono::steady_clock::now();
  const auto ask = [&] {
    const auto now = std::chrono::steady_clock::now();
    if (now < ask_at) return Status::Ok();
    ask_at = now + kAskEvery;
    return options.on_wait();
  };
  const auto restore = [&] {
    if (items.empty()) return Status::Ok();
    Status status = by_saved[items_table]->RestoreItems(items);
    items.clear();
    if (status.ok() && options.on_wait) status = ask();
    return status;
  };
  const CheckpointSource::Sink sink{
      .add_item =
          [&](size_t table, SavedItem item) {
            if (table != items_table || items.size() == kItemsAtATime) REVERB_RETURN_IF_ERROR(restore());
            items_table = table;
            items.push_back(std::move(item));
            return Status::Ok();
          },
      .add_row =
          [&](size_t table, SavedRow row) {
            if (options.on_wait) REVERB_RETURN_IF_ERROR(ask());
            return rows_of(table).RestoreRow(std::move(row));
          },
  };
  REVERB_RETURN_IF_ERROR(source.Read(*environment.store, wanted, sink, options.progress));
  REVERB_RETURN_IF_ERROR(restore());
  for (size_t i = 0; i < saved.row_tables.size(); ++i) {
    if (row_plans.wanted[i]) REVERB_RETURN_IF_ERROR(rows_of(i).FinishRestore());
  }
  for (size_t i = 0; i < saved.tables.size(); ++i) {
    if (by_saved[i] == nullptr) continue;
    REVERB_RETURN_IF_ERROR(by_saved[i]->FinishRestore(all.plans[*all.plan[i]].state));
    const TableInfo info = by_saved[i]->Info();
    const int64_t aged = info.aged_out - saved.tables[i].state.counts.aged_out;
    const int64_t evicted = saved.tables[i].size - info.current_size - aged;
    if (aged > 0) {
      Log(LogLevel::kInfo, "loading a checkpoint: table \"" + saved.tables[i].name + "\": " +
                               std::to_string(aged) + " items are older than max_age and were removed");
    }
    if (evicted > 0) {
      Log(LogLevel::kWarning, "loading a checkpoint: table \"" + saved.tables[i].name +
                                  "\": " + std::to_string(evicted) + " items did not fit into max_size " +
                                  std::to_string(info.max_size) + " and were evicted");
    }
  }
  loaded.writers = saved.writers;
  loaded.shard = saved.shard;
  return loaded;
}

namespace {

Result<LoadedServer> LoadPath(FileSystem* fs, const std::string& path, const RestoreOptions& options,
                              const std::vector<TableOptions>& given,
                              const ConcurrentTable::Environment& environment,
                              const std::vector<RowTableOptions>& given_rows) {
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source, OpenCheckpoint(fs, path));
  REVERB_ASSIGN_OR_RETURN(LoadedServer loaded, LoadFrom(*source, given, options, environment, given_rows));
  loaded.path = path;
  if (auto* own = dynamic_cast<ReverbSource*>(source.get())) loaded.segments = own->TakeLoaded();
  int64_t items = 0;
  for (const SavedTable& table : source->server().tables) items += table.size;
  int64_t rows = 0;
  for (const SavedRowTable& table : source->server().row_tables) rows += table.counts.rows;
  Log(LogLevel::kInfo,
      "loaded checkpoint \"" + path + "\" (" + source->server().format + ", " + std::to_string(items) +
          " items" + (source->server().row_tables.empty() ? "" : ", " + std::to_string(rows) + " rows") + ")",
      {{"event", kEventCheckpoint}, {"path", path}, {"items", items}, {"rows", rows}});
  return loaded;
}

}  // namespace

Result<LoadedServer> LoadLatest(FileSystem* fs, const CheckpointOptions& options,
                                const std::vector<TableOptions>& given,
                                const ConcurrentTable::Environment& environment,
                                const std::vector<RowTableOptions>& given_rows) {
  std::vector<CheckpointEntry> entries;
  if (Result<std::vector<CheckpointEntry>> listed = ListCheckpoints(fs, options.path); listed.ok()) {
    entries = *std::move(listed);
  } else if (listed.status().code() != StatusCode::kNotFound) {
    return std::move(listed).status();
  }
  std::erase_if(entries, [](const CheckpointEntry& entry) { return !entry.is_complete; });
  Status damage;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    Result<LoadedServer> loaded = LoadPath(fs, entry->path, options.restore, given, environment, given_rows);
    if (loaded.ok()) return loaded;
    // Errors other than damage need a decision by the user, who may not want an older state.
    if (loaded.status().code() != StatusCode::kDataLoss) return loaded;
    Log(LogLevel::kError,
        "checkpoint \"" + entry->path +
            "\" cannot be loaded, trying the previous one: " + std::string(loaded.status().message()),
        {{"event", kEventCheckpoint},
         {"path", entry->path},
         {"code", std::string(StatusCodeName(loaded.status().code()))}});
    if (damage.ok()) damage = std::move(loaded).status();
  }
  if (!damage.ok()) {
    return Status::DataLoss("none of the " + std::to_string(entries.size()) + " checkpoints under \"" +
                            options.path + "\" can be loaded; remove them, or give another path, to start " +
                            "empty. The latest: " + std::string(damage.message()))
        .WithDetail(damage.detail());
  }
  REVERB_ASSIGN_OR_RETURN(const CheckpointFormat format, DetectCheckpointFormat(fs, options.path));
  if (format != CheckpointFormat::kNone) {
    REVERB_ASSIGN_OR_RETURN(LoadedServer loaded,
                            LoadPath(fs, options.path, options.restore, given, environment, given_rows));
    loaded.segments.clear();  // they are in another folder than new ones
    return loaded;
  }
  if (options.fallback_path && !options.fallback_path->empty()) {
    REVERB_ASSIGN_OR_RETURN(const CheckpointFormat fallback,
                            DetectCheckpointFormat(fs, *options.fallback_path));
    if (fallback != CheckpointFormat::kNone) {
      REVERB_ASSIGN_OR_RETURN(LoadedServer loaded, LoadPath(fs, *options.fallback_path, options.restore,
                                                            given, environment, given_rows));
      loaded.segments.clear();
      return loaded;
    }
    Log(LogLevel::kWarning, "the fallback checkpoint \"" + *options.fallback_path +
                                "\" is not a complete checkpoint; the tables start empty");
  }
  return MakeEmpty(given, given_rows, environment);
}

}  // namespace reverb::internal
