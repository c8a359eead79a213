// A server for tests, in a separate process.
//
//   scenario_server --port 0 --table replay --table jobs:queue=10 --max-message-bytes 1048576
//
// Prints "port N" when it is ready. Stops at the end of its standard input, or on SIGTERM or SIGINT, and
// exits with 0.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reverb/server.h"

namespace {

using reverb::SelectorOptions;
using reverb::TableOptions;

constexpr std::string_view kUsage =
    "usage: scenario_server [--port N] [--table NAME[:KIND[:MAX_SIZE[:any]]]]...\n"
    "  KIND: fifo, uniform (the default), prioritized, or queue=N; any: items of any layout\n"
    "  --max-message-bytes N    --max-chunk-bytes N      --insert-window-bytes N\n"
    "  --max-waiting-items N    --sample-window-bytes N  --max-streams N\n"
    "  --writer-memory-ms N     --max-bytes N            --max-item-bytes N\n";

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Returns the part before the first ':'; `text` keeps the rest.
std::string_view TakePart(std::string_view* text) {
  const size_t colon = text->find(':');
  const std::string_view part = text->substr(0, colon);
  *text = colon == std::string_view::npos ? std::string_view() : text->substr(colon + 1);
  return part;
}

std::optional<TableOptions> ParseTable(std::string_view text) {
  TableOptions table;
  table.name = TakePart(&text);
  const std::string_view kind = TakePart(&text);
  if (kind == "fifo") {
    table.sampler = SelectorOptions::Fifo();
  } else if (kind == "prioritized") {
    table.sampler = SelectorOptions::Prioritized(1.0);
  } else if (kind.starts_with("queue=")) {
    const std::optional<int64_t> size = ParseNumber(kind.substr(6));
    if (!size) return std::nullopt;
    table = TableOptions::Queue(table.name, *size);
  } else if (!kind.empty() && kind != "uniform") {
    return std::nullopt;
  }
  if (!text.empty()) {
    const std::optional<int64_t> size = ParseNumber(TakePart(&text));
    if (!size) return std::nullopt;
    table.max_size = *size;
  }
  if (text == "any") {
    table.layout = reverb::LayoutPolicy::kAny;
  } else if (!text.empty()) {
    return std::nullopt;
  }
  return table;
}

// Returns false for an unknown option or an invalid value.
bool SetOption(std::string_view name, std::string_view value, reverb::ServerOptions* options) {
  if (name == "--table") {
    std::optional<TableOptions> table = ParseTable(value);
    if (table) options->tables.push_back(*std::move(table));
    return table.has_value();
  }
  const std::optional<int64_t> number = ParseNumber(value);
  if (!number) return false;
  const auto size = static_cast<uint64_t>(*number);
  reverb::ServerLimits& limits = options->limits;
  if (name == "--port" && *number <= 65535) {
    options->port = static_cast<int>(*number);
  } else if (name == "--max-message-bytes") {
    limits.max_message_bytes = size;
  } else if (name == "--max-chunk-bytes") {
    limits.max_chunk_bytes = size;
  } else if (name == "--max-item-bytes") {
    limits.max_item_bytes = size;
  } else if (name == "--insert-window-bytes") {
    limits.insert_window_bytes = size;
  } else if (name == "--max-waiting-items") {
    limits.max_waiting_items = size;
  } else if (name == "--sample-window-bytes") {
    limits.sample_window_bytes = size;
  } else if (name == "--max-streams") {
    limits.max_streams = size;
  } else if (name == "--writer-memory-ms") {
    limits.disconnected_session_ttl = std::chrono::milliseconds(*number);
  } else if (name == "--max-bytes") {
    options->store.max_bytes = *number;
  } else {
    return false;
  }
  return true;
}

void AwaitStop(int signals) {
  pollfd watched[] = {{STDIN_FILENO, POLLIN, 0}, {signals, POLLIN, 0}};
  while (true) {
    if (poll(watched, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (watched[1].revents != 0) return;
    char ignored[256];
    if (watched[0].revents != 0 && read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Before any thread starts, so that no thread is interrupted by these signals.
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
  const int signals = signalfd(-1, &stops, SFD_CLOEXEC);

  reverb::ServerOptions options;
  options.host = "127.0.0.1";
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (!SetOption(name, value, &options)) {
      std::fprintf(stderr, "scenario_server: cannot use \"%s\" with \"%s\"\n%s", argv[i], value.data(),
                   kUsage.data());
      return 2;
    }
  }

  reverb::Result<reverb::Server> server = reverb::Server::Start(std::move(options));
  if (!server.ok()) {
    std::fprintf(stderr, "scenario_server: %s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("port %d\n", server->port());
  std::fflush(stdout);
  AwaitStop(signals);
  server->Stop();
  return 0;
}
