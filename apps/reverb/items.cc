// `reverb peek` and `reverb sample`: items of a table, readable by eye.
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

// The first n items, over as many replies as they take.
Result<std::vector<SampledTrajectory>> Peek(const Client& client, const ItemsOptions& options) {
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

// As a learner that asks for n samples and no more.
Result<std::vector<SampledTrajectory>> Draw(const Client& client, const ItemsOptions& options) {
  REVERB_ASSIGN_OR_RETURN(Sampler sampler,
                          client.NewSampler({.table = options.table,
                                             .max_samples = options.n,
                                             .exact = true,
                                             .rate_limiter_timeout = options.remote.wait().timeout,
                                             .reconnect_timeout = std::chrono::seconds(1)}));
  std::vector<SampledTrajectory> samples;
  while (static_cast<int64_t>(samples.size()) < options.n) {
    REVERB_ASSIGN_OR_RETURN(SampledTrajectory sample, sampler.Next());
    samples.push_back(std::move(sample));
  }
  return samples;
}

Status Print(const std::vector<SampledTrajectory>& items, const ItemsView& view, bool json) {
  const Paint paint(HasColours(STDOUT_FILENO));
  for (const SampledTrajectory& item : items) {
    REVERB_ASSIGN_OR_RETURN(const std::string text, json ? view.ToJson(item) : view.ToText(item, paint));
    std::printf("%s\n", text.c_str());
  }
  return Status::Ok();
}

int ShowItems(const ItemsOptions& options) {
  const Remote& remote = options.remote;
  const Result<Client> client = remote.Connect();
  if (!client.ok()) return remote.Fail(client.status());
  Result<ServerInfo> info = client->Info(remote.wait());
  if (!info.ok()) return remote.Fail(info.status());
  Result<TableInfo> table = FindTable(*info, options.table);
  if (!table.ok()) return remote.Fail(table.status());
  const Result<std::vector<SampledTrajectory>> items =
      options.is_sample ? Draw(*client, options) : Peek(*client, options);
  if (options.is_sample && items.status().code() == StatusCode::kDeadlineExceeded) {
    info = client->Info(remote.wait());
    if (info.ok()) table = FindTable(*info, options.table);
    if (info.ok() && table.ok()) {
      return remote.Fail(Status::DeadlineExceeded("table " + Quote(options.table) + ": no sample in " +
                                                  ShowNumber(remote.timeout_seconds) +
                                                  " s: " + WhyNoSample(*table))
                             .WithDetail(Detail::kRateLimited));
    }
  }
  if (!items.ok()) return remote.Fail(items.status());
  if (options.is_sample) {
    // What was inserted while the sample waited is not older than the question.
    info = client->Info(remote.wait());
    if (!info.ok()) return remote.Fail(info.status());
  }
  ItemsView view = ItemsView::Of(*info, *table);
  view.values = options.values;
  view.are_samples = options.is_sample;
  if (const Status status = Print(*items, view, options.json); !status.ok()) return remote.Fail(status);
  if (!options.json) {
    const std::string what =
        ShowCount(static_cast<int64_t>(items->size()), options.is_sample ? "sample" : "item");
    const std::string of = " of table " + Quote(options.table);
    std::printf("%s\n",
                options.is_sample
                    ? (what + of + ", drawn and counted: the limiter and times_sampled have moved").c_str()
                    : (what + of + ", which holds " + ShowCount(table->current_size) +
                       "; looked at only, not counted as samples")
                          .c_str());
  }
  return kOk;
}

Command Add(CLI::App* program, const char* name, const char* description, bool is_sample) {
  const auto options = std::make_shared<ItemsOptions>();
  options->is_sample = is_sample;
  CLI::App* const app = program->add_subcommand(name, description);
  options->remote.AddTo(app);
  AddTableName(app, &options->table);
  app->add_option("-n,--n", options->n, "How many")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  app->add_option("--values", options->values, "How many elements of each column to show")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  app->add_flag("--json", options->json, "One line of JSON for each item");
  return {app, [options] { return ShowItems(*options); }};
}

}  // namespace

Command AddPeek(CLI::App* program) {
  Command command = Add(program, "peek", "Look at items without sampling them", /*is_sample=*/false);
  command.app->footer(
      "Examples:\n"
      "  reverb peek localhost:8000 replay --n 3\n"
      "  reverb peek localhost:8000 replay --n 100 --values 0 --json\n"
      "\n"
      "Items come in the order in which the table stores them. Nothing changes: not the limiter, not how "
      "often\n"
      "items were sampled.");
  return command;
}

Command AddSample(CLI::App* program) {
  Command command =
      Add(program, "sample", "Sample items as a learner would; counts as sampling", /*is_sample=*/true);
  command.app->footer(
      "Example:\n"
      "  reverb sample localhost:8000 replay --n 3 --timeout 30\n"
      "\n"
      "These are real samples: the limiter counts them, and items that may be sampled so many times only may "
      "go.\n"
      "Where the limiter lets samples wait, so does this command, for --timeout at most. `reverb peek` "
      "looks\n"
      "without counting.");
  return command;
}

}  // namespace reverb::program
