// `reverb peek` and `reverb sample`: show items of a table.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "exit_codes.h"
#include "items_view.h"
#include "remote.h"
#include "reverb/rows.h"
#include "rows_view.h"
#include "text.h"

namespace reverb::program {
namespace {

struct ItemsOptions {
  Remote remote;
  std::string table;
  int64_t n = 1;
  int64_t values = 8;
  bool json = false;
  bool is_sample = false;
};

// A table and its client.
struct Opened {
  Client client;
  ServerInfo info;
  TableInfo table;
};

Result<Opened> Open(const ItemsOptions& options) {
  REVERB_ASSIGN_OR_RETURN(Client client, options.remote.Connect());
  REVERB_ASSIGN_OR_RETURN(ServerInfo info, client.Info(options.remote.wait()));
  REVERB_ASSIGN_OR_RETURN(TableInfo table, FindTable(info, options.table));
  return Opened{.client = std::move(client), .info = std::move(info), .table = std::move(table)};
}

Status Print(const std::vector<SampledTrajectory>& items, const Opened& opened, const ItemsOptions& options) {
  ItemsView view = ItemsView::Of(opened.info, opened.table);
  view.format.columns.values = options.values;
  view.format.are_samples = options.is_sample;
  const Paint paint(HasColours(STDOUT_FILENO));
  for (const SampledTrajectory& item : items) {
    REVERB_ASSIGN_OR_RETURN(const std::string text,
                            options.json ? view.ToJson(item) : view.ToText(item, paint));
    std::printf("%s\n", text.c_str());
  }
  if (options.json) return Status::Ok();
  std::string end = ShowCount(static_cast<int64_t>(items.size()), options.is_sample ? "sample" : "item") +
                    " of table " + Quote(options.table);
  end += options.is_sample ? ", drawn and counted: the limiter and times_sampled have changed"
                           : ", which holds " + ShowCount(opened.table.current_size) +
                                 "; inspected, not counted as samples";
  std::printf("%s\n", end.c_str());
  return Status::Ok();
}

// Returns the first n items, with several requests if necessary.
Result<std::vector<SampledTrajectory>> Look(const Client& client, const ItemsOptions& options) {
  std::vector<SampledTrajectory> items;
  uint64_t cursor = 0;
  do {
    const int64_t left = options.n - static_cast<int64_t>(items.size());
    REVERB_ASSIGN_OR_RETURN(std::vector<SampledTrajectory> more,
                            client.Inspect(options.table, left, &cursor, options.remote.wait()));
    std::ranges::move(more, std::back_inserter(items));
  } while (cursor != 0 && static_cast<int64_t>(items.size()) < options.n);
  return items;
}

// Shows rows of a row table, with their state.
Status PeekRows(const Client& client, const RowTableInfo& table, const ItemsOptions& options) {
  const RowsView view{.table = options.table, .values = options.values};
  const Paint paint(HasColours(STDOUT_FILENO));
  REVERB_ASSIGN_OR_RETURN(const Rows rows, client.RowTable(options.table));
  REVERB_ASSIGN_OR_RETURN(const std::vector<RowInfo> listed, rows.List("", options.n, options.remote.wait()));
  for (const RowInfo& row : listed) {
    const std::string keys[] = {row.key};
    REVERB_ASSIGN_OR_RETURN(const RowBatch batch, rows.Get(keys, row.columns, options.remote.wait()));
    REVERB_ASSIGN_OR_RETURN(const std::string text,
                            options.json ? view.ToJson(row, batch) : view.ToText(row, batch, paint));
    std::printf("%s\n", text.c_str());
  }
  if (options.json) return Status::Ok();
  std::printf("%s of row table %s, which holds %s; inspected, not claimed\n",
              ShowCount(static_cast<int64_t>(listed.size()), "row").c_str(), Quote(options.table).c_str(),
              ShowCount(table.counts.rows).c_str());
  return Status::Ok();
}

int Peek(const ItemsOptions& options) {
  const Result<RemoteTable> target = options.remote.FindAny(options.table);
  if (!target.ok()) return options.remote.Fail(target.status());
  if (target->rows) {
    const Status status = PeekRows(target->client, *target->rows, options);
    return status.ok() ? kOk : options.remote.Fail(status);
  }
  const Opened opened{.client = target->client, .info = target->server, .table = target->table};
  const Result<std::vector<SampledTrajectory>> items = Look(opened.client, options);
  const Status status = items.ok() ? Print(*items, opened, options) : items.status();
  return status.ok() ? kOk : options.remote.Fail(status);
}

// Draws exactly n samples, like a learner. After an error, *samples holds those drawn before.
Status Draw(const Client& client, const ItemsOptions& options, std::vector<SampledTrajectory>* samples) {
  const std::chrono::nanoseconds patience = *options.remote.wait().timeout;
  constexpr std::chrono::seconds kReconnect{1};
  REVERB_ASSIGN_OR_RETURN(Sampler sampler, client.NewSampler({.table = options.table,
                                                              .max_samples = options.n,
                                                              .exact = true,
                                                              .rate_limiter_timeout = patience,
                                                              .reconnect_timeout = kReconnect}));
  while (static_cast<int64_t>(samples->size()) < options.n) {
    // The server ends the wait for its limiter. The deadline covers a server that no longer answers.
    REVERB_ASSIGN_OR_RETURN(SampledTrajectory sample, sampler.Next({.timeout = patience + kReconnect}));
    samples->push_back(std::move(sample));
  }
  return Status::Ok();
}

int Sample(const ItemsOptions& options) {
  const Remote& remote = options.remote;
  Result<Opened> opened = Open(options);
  if (!opened.ok()) return remote.Fail(opened.status());
  std::vector<SampledTrajectory> samples;
  Status status = Draw(opened->client, options, &samples);
  // Reads the information again: the table has changed during the wait.
  opened = Open(options);
  if (!opened.ok()) return remote.Fail(status.ok() ? opened.status() : status);
  // Shows the drawn samples, since they count even after an error.
  if (!samples.empty()) {
    if (const Status printed = Print(samples, *opened, options); !printed.ok()) return remote.Fail(printed);
  }
  if (status.code() == StatusCode::kDeadlineExceeded) {
    status = Status::DeadlineExceeded(
                 "table " + Quote(options.table) + ": no" + (samples.empty() ? "" : " further") +
                 " sample in " + ShowNumber(remote.timeout_seconds) + " s: " + WhyNoSample(opened->table))
                 .WithDetail(Detail::kRateLimited);
  }
  return status.ok() ? kOk : remote.Fail(status);
}

Command Add(CLI::App* program, const char* name, const char* description, bool is_sample) {
  const auto options = std::make_shared<ItemsOptions>();
  options->is_sample = is_sample;
  CLI::App* const app = program->add_subcommand(name, description);
  options->remote.AddTo(app);
  AddTableName(app, &options->table);
  app->add_option("-n,--n", options->n, "Number of items")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  app->add_option("--values", options->values, "Number of elements of each column to show")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  app->add_flag("--json", options->json, "One line of JSON for each item");
  return {app, [options] { return options->is_sample ? Sample(*options) : Peek(*options); }};
}

}  // namespace

Command AddPeek(CLI::App* program) {
  Command command =
      Add(program, "peek", "Show items or rows without sampling or claiming them", /*is_sample=*/false);
  command.app->footer(
      "Examples:\n"
      "  reverb peek localhost:8000 replay --n 3\n"
      "  reverb peek localhost:8000 replay --n 100 --values 0 --json\n"
      "\n"
      "Shows items in the order of the table. Changes neither the limiter nor the sample counts. Of a row "
      "table it\n"
      "shows rows, open ones too: key, group, version, tags, columns, and which consumers have them.");
  return command;
}

Command AddSample(CLI::App* program) {
  Command command =
      Add(program, "sample", "Sample items as a learner would; counts as sampling", /*is_sample=*/true);
  command.app->footer(
      "Example:\n"
      "  reverb sample localhost:8000 replay --n 3 --timeout 30\n"
      "\n"
      "These are real samples: the limiter counts them, and items that reach max_times_sampled are removed.\n"
      "If the limiter blocks samples, this command waits for at most --timeout. `reverb peek` shows items\n"
      "without counting.");
  return command;
}

}  // namespace reverb::program
