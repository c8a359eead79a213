// table_extension.cc — a custom table extension, in a server.
//
// Use it for actions that belong to every insert, sample or update of a table, whatever its origin: counting,
// changing priorities by a rule, notifications. It runs inside the server, atomically with the operation.
//
// This extension lowers the priority of each sampled item, so that all items are sampled from time to time
// even if no learner updates priorities. In the output, compare how often the items with the highest and the
// lowest priority were sampled, without the extension and with it.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "reverb/client.h"
#include "reverb/extension.h"
#include "reverb/server.h"

namespace {

void Expect(const reverb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "table_extension: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Expect(reverb::Result<T> result) {
  if (!result.ok()) Expect(result.status());
  return *std::move(result);
}

// --- The extension ---

// Multiplies the priority of an item by `factor` whenever it is sampled, but not below `min_priority`.
class PriorityDecay : public reverb::TableExtension {
 public:
  PriorityDecay(double factor, double min_priority) : factor_(factor), min_priority_(min_priority) {}

  std::string name() const override { return "priority_decay"; }

  // Runs under the table's lock: must be quick, must not wait, and must not call into tables. Requests
  // changes through the context, which applies them after all hooks of this operation have run.
  void OnSample(const reverb::ItemView& item, Context& context) override {
    context.UpdatePriority(item.key, std::max(min_priority_, item.priority * factor_));
    lowered_.fetch_add(1, std::memory_order_relaxed);
  }

  // The state for checkpoints of the table.
  std::string SaveState() const override { return std::to_string(lowered()); }
  reverb::Status LoadState(std::string_view state) override {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(state.data(), state.data() + state.size(), value);
    if (error != std::errc() || end != state.data() + state.size()) {
      return reverb::Status::InvalidArgument("extension \"priority_decay\": \"" + std::string(state) +
                                             "\" is not a count");
    }
    lowered_.store(value, std::memory_order_relaxed);
    return reverb::Status::Ok();
  }

  // Called from any thread, so atomic.
  int64_t lowered() const { return lowered_.load(std::memory_order_relaxed); }

 private:
  const double factor_;
  const double min_priority_;
  std::atomic<int64_t> lowered_{0};
};

// --- A server with the extension, and one without ---

constexpr int64_t kItems = 100;
constexpr int64_t kSamples = 10'000;

// Returns how often each item was sampled, by its number; item i has priority i + 1.
std::map<int64_t, int64_t> CountSamples(std::shared_ptr<PriorityDecay> extension) {
  reverb::TableOptions table;
  table.name = "replay";
  table.sampler = reverb::SelectorOptions::Prioritized(1.0, /*seed=*/1);
  table.max_size = 1'000;
  // An extension object belongs to one table.
  if (extension) table.extensions = {std::move(extension)};
  const reverb::Server server =
      Expect(reverb::Server::Start({.tables = {table}, .host = "127.0.0.1", .port = 0}));
  const reverb::Client client = Expect(reverb::Client::Connect("127.0.0.1:" + std::to_string(server.port())));

  for (int64_t number = 0; number < kItems; ++number) {
    const std::array step{reverb::TensorView{reverb::DType::kInt64, {}, &number}};
    const std::array where{reverb::Client::TablePriority{"replay", static_cast<double>(number + 1)}};
    Expect(client.Insert(step, where));
  }
  std::map<int64_t, int64_t> counts;
  for (int64_t drawn = 0; drawn < kSamples; drawn += 10) {
    for (const reverb::SampledTrajectory& sample : Expect(client.Sample("replay", 10))) {
      const reverb::Tensor number = Expect(sample.column(0));
      ++counts[*reinterpret_cast<const int64_t*>(number.data())];
    }
  }
  return counts;
}

void Report(const char* what, const std::map<int64_t, int64_t>& counts) {
  int64_t low = 0, high = 0;
  for (const auto& [number, count] : counts) (number < kItems / 2 ? low : high) += count;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  std::printf(
      "  %s: items with low priority got %.0f %% of %lld samples, those with high priority %.0f %%; most "
      "often item %lld, %lld times\n",
      what, 100.0 * static_cast<double>(low) / kSamples, static_cast<long long>(kSamples),
      100.0 * static_cast<double>(high) / kSamples, static_cast<long long>(most->first),
      static_cast<long long>(most->second));
}

}  // namespace

int main() {
  std::printf(
      "table_extension: a server whose table lowers the priority of each sampled item. %lld items have the "
      "priorities 1 to %lld. Shares of the lower and the upper half:\n",
      static_cast<long long>(kItems), static_cast<long long>(kItems));
  Report("without the extension", CountSamples(nullptr));
  const auto decay = std::make_shared<PriorityDecay>(/*factor=*/0.9, /*min_priority=*/0.01);
  Report("with the extension   ", CountSamples(decay));
  std::printf("  the extension lowered %lld priorities\n", static_cast<long long>(decay->lowered()));
  return decay->lowered() == kSamples ? 0 : 1;
}
