// selector_bench — measures the cost of a draw and of a priority update in the prioritized selector.
//
//   selector_bench [items] [rounds]          (default: 1000000 and 7)
//
// Calls our selector through the Selector interface, like a table. The reference, in alternating rounds, is a
// plain binary sum tree with branches, called directly. Times are medians over the rounds, in ns per draw or
// update; the range is that of the rounds. Before timing, verifies both: the frequency of one heavy item, and
// its probability.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "benchmarks/reference/binary_sum_tree.h"
#include "reverb/selector.h"

namespace reverb::internal {
namespace {

constexpr size_t kBatch = 32;
constexpr size_t kOperations = 1 << 20;  // per round of one measurement

uint64_t sink = 0;  // keeps results alive

struct Measurement {
  std::string name;
  std::function<void()> run;  // performs kOperations operations
  std::vector<double> ns;

  double Median() {
    std::sort(ns.begin(), ns.end());
    return ns[ns.size() / 2];
  }
};

void RunRound(std::vector<Measurement>& measurements) {
  for (Measurement& m : measurements) {
    const auto start = std::chrono::steady_clock::now();
    m.run();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    m.ns.push_back(took.count() / static_cast<double>(kOperations));
  }
}

std::unique_ptr<Selector> Filled(double exponent, size_t items) {
  std::unique_ptr<Selector> selector = *MakeSelector(SelectorOptions::Prioritized(exponent, 1));
  Random random(2);
  for (size_t i = 0; i < items; ++i)
    selector->Insert({.slot = static_cast<Slot>(i), .priority = 2 * random.Unit()});
  return selector;
}

void Sample(Selector& selector, size_t batch) {
  Selection picks[kBatch];
  for (size_t i = 0; i < kOperations; i += batch) {
    selector.Sample(std::span(picks, batch));
    sink += picks[0].slot;
  }
}

void Update(Selector& selector, Random& random, size_t items, size_t batch) {
  SelectorItem changes[kBatch];
  for (size_t i = 0; i < kOperations; i += batch) {
    for (size_t j = 0; j < batch; ++j) {
      changes[j] = {.slot = static_cast<Slot>(random.Below(items)), .priority = 2 * random.Unit()};
    }
    selector.Update(std::span(changes, batch));
  }
}

// One item has half of the total weight: it must be drawn half of the time, within 5 sigma.
bool Check(size_t items) {
  std::unique_ptr<Selector> selector = *MakeSelector(SelectorOptions::Prioritized(1, 3));
  const Slot heavy = static_cast<Slot>(items / 3);
  for (size_t i = 0; i < items; ++i) {
    selector->Insert(
        {.slot = static_cast<Slot>(i), .priority = i == heavy ? static_cast<double>(items - 1) : 1.0});
  }
  constexpr size_t kDraws = 1 << 16;
  std::vector<Selection> picks(kDraws);
  selector->Sample(picks);
  size_t hits = 0;
  for (const Selection& pick : picks) {
    hits += pick.slot == heavy;
    const double expected = pick.slot == heavy ? 0.5 : 0.5 / static_cast<double>(items - 1);
    if (pick.slot >= items || pick.probability != expected) return false;
  }
  return std::abs(static_cast<double>(hits) - kDraws / 2.0) < 5 * std::sqrt(kDraws / 4.0);
}

int Main(size_t items, int rounds) {
  if (!Check(items)) {
    std::fprintf(stderr, "the selector draws wrongly\n");
    return 1;
  }
  std::unique_ptr<Selector> ours = Filled(1, items);
  std::unique_ptr<Selector> ours06 = Filled(0.6, items);
  bench::BinarySumTree branchy(items);
  Random random(4);
  for (size_t i = 0; i < items; ++i) branchy.Update(i, 2 * random.Unit());

  std::vector<Measurement> all;
  const auto add = [&all](std::string name, std::function<void()> run) {
    all.push_back({.name = std::move(name), .run = std::move(run), .ns = {}});
  };
  // Triples: the reference, ours, ours with an exponent that needs pow().
  add("sample, 32 at once", [&] {
    double points[kBatch];
    size_t found[kBatch];
    Selection picks[kBatch];
    for (size_t i = 0; i < kOperations; i += kBatch) {
      for (double& point : points) point = random.Unit() * branchy.total();
      branchy.SampleInterleaved(&points[0], kBatch, &found[0]);
      for (size_t j = 0; j < kBatch; ++j) {
        picks[j] = {static_cast<Slot>(found[j]), branchy.weight(found[j]) / branchy.total()};
      }
      sink += picks[i % kBatch].slot + static_cast<uint64_t>(picks[kBatch - 1].probability);
    }
  });
  add("", [&] { Sample(*ours, kBatch); });
  add("", [&] { Sample(*ours06, kBatch); });
  add("update, 32 at once", [&] {
    std::pair<size_t, double> changes[kBatch];
    for (size_t i = 0; i < kOperations; i += kBatch) {
      for (auto& change : changes) change = {random.Below(items), 2 * random.Unit()};
      for (const auto& [slot, weight] : changes) branchy.Update(slot, weight);
    }
  });
  add("", [&] { Update(*ours, random, items, kBatch); });
  add("", [&] { Update(*ours06, random, items, kBatch); });
  add("sample, one by one", [&] {
    for (size_t i = 0; i < kOperations; ++i) {
      const size_t found = branchy.Sample(random.Unit() * branchy.total());
      const Selection pick = {static_cast<Slot>(found), branchy.weight(found) / branchy.total()};
      sink += pick.slot + static_cast<uint64_t>(pick.probability);
    }
  });
  add("", [&] { Sample(*ours, 1); });
  add("", [&] { Sample(*ours06, 1); });
  add("update, one by one", [&] {
    for (size_t i = 0; i < kOperations; ++i) branchy.Update(random.Below(items), 2 * random.Unit());
  });
  add("", [&] { Update(*ours, random, items, 1); });
  add("", [&] { Update(*ours06, random, items, 1); });

  RunRound(all);  // warm-up
  for (Measurement& m : all) m.ns.clear();
  for (int round = 0; round < rounds; ++round) RunRound(all);

  std::printf("prioritized selector, %zu items, ns per operation, median of %d rounds (range)\n", items,
              rounds);
  std::printf("%-20s %-22s %-22s %-22s %s\n", "", "branchy binary tree", "ours, exponent 1",
              "ours, exponent 0.6", "tree / ours");
  for (size_t i = 0; i < all.size(); i += 3) {
    std::printf("%-20s", all[i].name.c_str());
    for (size_t j = i; j < i + 3; ++j) {
      char text[64];
      const double median = all[j].Median();
      std::snprintf(text, sizeof(text), "%.1f (%.1f-%.1f)", median, all[j].ns.front(), all[j].ns.back());
      std::printf(" %-22s", text);
    }
    std::printf(" %.2fx\n", all[i].Median() / all[i + 1].Median());
  }
  return sink == 0 ? 2 : 0;
}

}  // namespace
}  // namespace reverb::internal

int main(int argc, char** argv) {
  const size_t items = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  if (items < 2 || rounds < 1) {
    std::fprintf(stderr, "usage: selector_bench [items >= 2] [rounds >= 1]\n");
    return 2;
  }
  return reverb::internal::Main(items, rounds);
}
