// `reverb top`: the state of a server on the whole screen, with keys to sort and select.
//
// Plain escape sequences suffice, as for `reverb info --watch`: the page has no widgets, and a library such as ncurses
// would be the program's only dependency on the terminal database of the machine.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "command.h"
#include "exit_codes.h"
#include "remote.h"
#include "signals.h"
#include "snapshot.h"
#include "terminal.h"
#include "text.h"
#include "top_view.h"

namespace reverb::program {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

struct TopOptions {
  Remote remote;
  double every_seconds = 1;
};

// Asks the server on a thread of its own, so that keys and signals are handled while it does not answer.
class Poller {
 public:
  Poller(const Client& client, const Remote& remote, int wake_up) : wake_up_(wake_up) {
    thread_ = std::thread([this, client, remote] { Run(client, remote); });
  }
  ~Poller() {
    {
      const std::lock_guard lock(mu_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Requests an answer, unless one is on its way.
  void Ask() {
    const std::lock_guard lock(mu_);
    if (!asked_since_) asked_since_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  // Returns the answer, once.
  std::optional<Result<Snapshot>> Take() {
    const std::lock_guard lock(mu_);
    return std::exchange(answer_, std::nullopt);
  }
  // Returns since when an answer has been outstanding.
  std::optional<SteadyTime> asked_since() const {
    const std::lock_guard lock(mu_);
    return asked_since_;
  }

 private:
  void Run(const Client& client, const Remote& remote) {
    std::unique_lock lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopped_ || asked_since_.has_value(); });
      if (is_stopped_) return;
      lock.unlock();
      Result<Snapshot> answer = TakeSnapshot(client, remote, [this] {
        const std::lock_guard relock(mu_);
        return is_stopped_ ? Status::Cancelled("the program ends") : Status::Ok();
      });
      lock.lock();
      answer_ = std::move(answer);
      asked_since_.reset();
      constexpr char kAny = 1;
      (void)!write(wake_up_, &kAny, 1);
    }
  }

  const int wake_up_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::optional<SteadyTime> asked_since_;
  std::optional<Result<Snapshot>> answer_;
  std::thread thread_;
};

// Signal handlers write the number of the signal to a pipe that the loop polls.
int signal_pipe[2] = {-1, -1};

void WriteSignal(int number) {
  const int error = errno;
  const auto byte = static_cast<char>(number);
  (void)!write(signal_pipe[1], &byte, 1);
  errno = error;
}

bool OpenPipe(int (&ends)[2]) { return pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0; }

void HandleSignals() {
  struct sigaction action {};
  action.sa_handler = WriteSignal;
  for (const int number : StopSignals()) sigaction(number, &action, nullptr);
  sigaction(SIGWINCH, &action, nullptr);
  sigaction(SIGTSTP, &action, nullptr);
}

std::string ReadAll(int descriptor) {
  std::string bytes;
  char part[256];
  ssize_t size = 0;
  while ((size = read(descriptor, part, sizeof(part))) > 0) {
    bytes.append(part, static_cast<size_t>(size));
    if (static_cast<size_t>(size) < sizeof(part)) break;
  }
  return bytes;
}

// Describes what is wrong with the connection; empty if nothing is.
std::string Problem(const std::string& address, const Status& last, const Poller& poller) {
  constexpr std::chrono::seconds kSlow(1);
  const std::optional<SteadyTime> since = poller.asked_since();
  const auto waited = since ? std::chrono::steady_clock::now() - *since : std::chrono::nanoseconds(0);
  if (!last.ok()) {
    return "no answer from " + ShowName(address) + "; reconnecting: " + ShowName(last.message());
  }
  if (waited < kSlow) return "";
  return "no answer from " + ShowName(address) + " for " + ShowDuration(waited) + "; reconnecting";
}

// Shows pages until a key or a signal ends it. Returns the number of the signal, 0 for a key.
int ShowPages(TopState* state, Poller* poller, int answers) {
  const Paint paint(HasColours(STDOUT_FILENO));
  std::optional<Screen> screen(std::in_place);
  Status last;
  SteadyTime next_question = std::chrono::steady_clock::now();
  while (true) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (!state->is_paused && now >= next_question) {
      poller->Ask();
      next_question = now + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::duration<double>(state->every_seconds));
    }
    state->problem = Problem(state->address, last, *poller);
    screen->Show(state->Page(TerminalSize(), paint));

    pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                       {.fd = signal_pipe[0], .events = POLLIN, .revents = 0},
                       {.fd = answers, .events = POLLIN, .revents = 0}};
    constexpr int kRedrawMillis = 1000;  // counts the seconds without an answer
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next_question - now).count();
    if (poll(events, std::size(events), static_cast<int>(std::clamp<int64_t>(rest, 1, kRedrawMillis))) < 0) {
      if (errno == EINTR) continue;
      return SIGTERM;
    }
    if (events[0].revents != 0) {
      const std::string keys = ReadAll(STDIN_FILENO);
      if (keys.empty() || !state->Type(keys)) return 0;  // the terminal was closed, or q
    }
    for (const char signal : events[1].revents != 0 ? ReadAll(signal_pipe[0]) : std::string()) {
      if (signal == SIGTSTP) {
        screen.reset();
        raise(SIGSTOP);  // until SIGCONT
        screen.emplace();
      } else if (signal != SIGWINCH) {
        return signal;
      }
    }
    if (events[2].revents != 0) ReadAll(answers);
    if (std::optional<Result<Snapshot>> answer = poller->Take()) {
      last = answer->status();
      if (answer->ok()) {
        state->before = std::move(state->now);
        state->now = **std::move(answer);
      }
    }
  }
}

int Top(const TopOptions& options) {
  const char* const term = std::getenv("TERM");
  if (!IsTerminal(STDIN_FILENO) || !IsTerminal(STDOUT_FILENO) ||
      (term != nullptr && std::string_view(term) == "dumb")) {
    std::fprintf(
        stderr,
        "reverb top: standard input and output must be a terminal with cursor control. Use `reverb info "
        "%s --watch`, or `--watch --json` for programs.\n",
        options.remote.address.c_str());
    return kBadUsage;
  }
  const Result<Client> client = options.remote.Connect();
  if (!client.ok()) return options.remote.Fail(client.status());
  // A wrong address fails at the start; a server that stops later may come back.
  Result<Snapshot> first = TakeSnapshot(*client, options.remote);
  if (!first.ok()) return options.remote.Fail(first.status());
  int answers[2];
  if (!OpenPipe(signal_pipe) || !OpenPipe(answers)) {
    std::fprintf(stderr, "reverb top: cannot create a pipe; are there file descriptors left (ulimit -n)?\n");
    return kFailed;
  }
  HandleSignals();
  TopState state{.address = options.remote.address, .now = *std::move(first)};
  state.every_seconds = options.every_seconds;
  Poller poller(*client, options.remote, answers[1]);
  ShowPages(&state, &poller, answers[0]);
  return kOk;
}

}  // namespace

Command AddTop(CLI::App* program) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* const app =
      program->add_subcommand("top", "Show a server's tables on the whole screen, sorted, with details");
  options->remote.AddTo(app);
  app->add_option("--every", options->every_seconds, "Interval between updates")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0.05, 86400))
      ->capture_default_str();
  app->footer(
      "Example:\n"
      "  reverb top localhost:8000\n"
      "\n"
      "Keys: n s b i o w sort by name, size, bytes, inserts/s, samples/s and waiting calls; again: "
      "reversed.\n"
      "Up and down select a table, Enter hides or shows its limiter and who waits for it and why. ? lists "
      "all\n"
      "keys, q ends. Where there is no terminal, use `reverb info --watch`.");
  return {app, [options] { return Top(*options); }};
}

}  // namespace reverb::program
