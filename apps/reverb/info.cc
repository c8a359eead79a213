// `reverb info`: shows the state of a server, once or continuously like top.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "command.h"
#include "exit_codes.h"
#include "info_view.h"
#include "remote.h"
#include "signals.h"
#include "snapshot.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

struct InfoOptions {
  Remote remote;
  bool json = false;
  bool watch = false;
  double every_seconds = 1;
  int64_t count = 0;  // 0 = forever
};

volatile sig_atomic_t stop_asked = 0;

// Waits for the interval, a key or a new window size. Returns false if the command should end.
bool Rest(std::chrono::steady_clock::time_point until) {
  while (stop_asked == 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return true;
    pollfd keys{.fd = IsTerminal(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    const int ready = poll(&keys, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready < 0 && errno == EINTR) return stop_asked == 0;
    if (ready > 0) {
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return false;
      return true;
    }
  }
  return false;
}

int Watch(const InfoOptions& options, const Client& client) {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = 1; };
  for (const int number : StopSignals()) sigaction(number, &action, nullptr);
  action.sa_handler = [](int) {};  // only interrupts the wait
  sigaction(SIGWINCH, &action, nullptr);

  const bool on_terminal = IsTerminal(STDOUT_FILENO) && !options.json;
  const Paint paint(HasColours(STDOUT_FILENO));
  std::optional<Screen> screen;
  std::optional<Snapshot> before;
  for (int64_t turn = 1;; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    Result<Snapshot> now = TakeSnapshot(client, options.remote);
    // A wrong address fails at the start; a server that stopped later may come back.
    if (!now.ok() && turn == 1) return options.remote.Fail(now.status());
    std::string page;
    if (!now.ok()) {
      page = options.json ? ""
                          : paint.Red("no answer from " + options.remote.address + "; trying again") + "\n" +
                                ShowName(now.status().message()) + "\n";
    } else {
      const Snapshot* const earlier = before ? &*before : nullptr;
      page = options.json ? InfoJson(options.remote.address, *now, earlier) + "\n"
                          : InfoPage(options.remote.address, *now, earlier, paint);
      before = *std::move(now);
    }
    if (on_terminal) {
      if (!screen) screen.emplace();
      screen->Show(page + "\n" + paint.Dim("every " + ShowNumber(options.every_seconds) + " s; q ends") +
                   "\n");
    } else {
      std::fputs((page + (options.json ? "" : "\n")).c_str(), stdout);
      if (std::fflush(stdout) != 0) return kFailed;  // the reader has closed the pipe
    }
    if (turn == options.count) return kOk;
    if (!Rest(start + std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::duration<double>(options.every_seconds)))) {
      return kOk;
    }
  }
}

int Info(const InfoOptions& options) {
  const Result<Client> client = options.remote.Connect();
  if (!client.ok()) return options.remote.Fail(client.status());
  if (options.watch) return Watch(options, *client);
  const Result<Snapshot> now = TakeSnapshot(*client, options.remote);
  if (!now.ok()) return options.remote.Fail(now.status());
  const std::string page =
      options.json ? InfoJson(options.remote.address, *now, nullptr) + "\n"
                   : InfoPage(options.remote.address, *now, nullptr, Paint(HasColours(STDOUT_FILENO)));
  std::fputs(page.c_str(), stdout);
  return kOk;
}

}  // namespace

Command AddInfo(CLI::App* program) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App* const app =
      program->add_subcommand("info", "Show a server's tables: sizes, rates, limiters, waiting clients");
  options->remote.AddTo(app);
  app->add_flag("--json", options->json, "One line of JSON instead of a page");
  app->add_flag("--watch", options->watch, "Update continuously, like top; q or Ctrl-C ends");
  app->add_option("--every", options->every_seconds, "With --watch: interval between updates")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0.05, 86400))
      ->capture_default_str();
  app->add_option("--count", options->count, "With --watch: end after N updates")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app->footer(
      "Examples:\n"
      "  reverb info localhost:8000\n"
      "  reverb info localhost:8000 --watch --every 2\n"
      "  reverb info localhost:8000 --json | python3 -m json.tool\n"
      "\n"
      "Rates cover the last ten seconds; with --watch, the time since the last update. The cursor is\n"
      "inserts * samples per insert - samples: the limiter keeps it between its bounds by blocking callers.");
  return {app, [options] { return Info(*options); }};
}

}  // namespace reverb::program
