#include "top_view.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "rows_view.h"
#include "text.h"

namespace reverb::program {
namespace {

constexpr struct {
  char key;
  TopOrder order;
  const char* name;
} kOrders[] = {{'n', TopOrder::kName, "name"},         {'s', TopOrder::kSize, "size"},
               {'b', TopOrder::kBytes, "bytes"},       {'i', TopOrder::kInserts, "inserts/s"},
               {'o', TopOrder::kSamples, "samples/s"}, {'w', TopOrder::kWaiting, "waiting"}};

constexpr char kUp[] = "\033[A", kDown[] = "\033[B", kUpInApplicationMode[] = "\033OA",
               kDownInApplicationMode[] = "\033OB";

constexpr char kHelp[] =
    "\n"
    "  n s b i o w   sort by name, size, bytes, inserts/s, samples/s, waiting calls; again: reversed\n"
    "  r             reverse the order\n"
    "  up down k j   select a table\n"
    "  Enter d       show or hide the details of the selected table\n"
    "  Space p       pause\n"
    "  + -           update less or more often\n"
    "  h ?           show or hide this help\n"
    "  q Ctrl-C      end\n";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Waiting(const TableInfo& table) {
  std::string waiting;
  if (table.waiting_inserts > 0) waiting = ShowCount(table.waiting_inserts, "insert");
  if (table.waiting_samples > 0) {
    waiting += (waiting.empty() ? "" : ", ") + ShowCount(table.waiting_samples, "sample");
  }
  return waiting;
}

}  // namespace

std::vector<TableInfo> TopState::Tables() const {
  if (!now) return {};
  std::vector<std::pair<double, TableInfo>> keyed;
  for (const TableInfo& table : now->info.tables) {
    const Rates rates = RatesOf(table, *now, before ? &*before : nullptr);
    double key = 0;
    switch (order) {
      case TopOrder::kName:
        break;
      case TopOrder::kSize:
        key = static_cast<double>(table.current_size);
        break;
      case TopOrder::kBytes:
        key = static_cast<double>(table.referenced_bytes);
        break;
      case TopOrder::kInserts:
        key = rates.inserts;
        break;
      case TopOrder::kSamples:
        key = rates.samples;
        break;
      case TopOrder::kWaiting:
        key = static_cast<double>(table.waiting_inserts + table.waiting_samples);
        break;
    }
    keyed.emplace_back(key, table);
  }
  // The largest first; equal ones by name.
  std::ranges::stable_sort(keyed, [this](const auto& a, const auto& b) {
    if (a.first != b.first) return is_reversed ? a.first < b.first : a.first > b.first;
    return is_reversed && order == TopOrder::kName ? a.second.name > b.second.name
                                                   : a.second.name < b.second.name;
  });
  std::vector<TableInfo> tables;
  for (auto& [key, table] : keyed) tables.push_back(std::move(table));
  return tables;
}

void TopState::SortBy(TopOrder by) {
  is_reversed = by == order && !is_reversed;
  order = by;
}

void TopState::Select(int distance) {
  const std::vector<TableInfo> tables = Tables();
  if (tables.empty()) return;
  const auto found = std::ranges::find(tables, selected, &TableInfo::name);
  const auto at = found == tables.end() ? 0 : static_cast<int>(found - tables.begin());
  const int next = std::clamp(at + distance, 0, static_cast<int>(tables.size()) - 1);
  selected = tables[static_cast<size_t>(next)].name;
}

bool TopState::Type(std::string_view keys) {
  constexpr double kFastest = 0.1, kSlowest = 60;
  while (!keys.empty()) {
    if (keys.starts_with(kUp) || keys.starts_with(kUpInApplicationMode)) {
      Select(-1);
      keys.remove_prefix(3);
      continue;
    }
    if (keys.starts_with(kDown) || keys.starts_with(kDownInApplicationMode)) {
      Select(1);
      keys.remove_prefix(3);
      continue;
    }
    if (keys.starts_with("\033[") || keys.starts_with("\033O")) {  // a key without a meaning
      const size_t end = keys.find_first_not_of("0123456789;", 2);
      keys.remove_prefix(end == std::string_view::npos ? keys.size() : end + 1);
      continue;
    }
    const char key = keys[0];
    keys.remove_prefix(1);
    for (const auto& [letter, by, name] : kOrders) {
      if (key == letter) SortBy(by);
    }
    switch (key) {
      case 'q':
      case 'Q':
        return false;
      case 'r':
        is_reversed = !is_reversed;
        break;
      case 'k':
        Select(-1);
        break;
      case 'j':
        Select(1);
        break;
      case '\n':
      case '\r':
      case 'd':
        shows_detail = !shows_detail;
        break;
      case ' ':
      case 'p':
        is_paused = !is_paused;
        break;
      case 'h':
      case '?':
        shows_help = !shows_help;
        break;
      case '+':
        every_seconds = std::min(every_seconds * 2, kSlowest);
        break;
      case '-':
        every_seconds = std::max(every_seconds / 2, kFastest);
        break;
      default:
        break;
    }
  }
  return true;
}

std::string TopState::Page(Size size, const Paint& paint) const {
  std::vector<std::string> page;
  const auto rows = static_cast<size_t>(std::max(size.rows, 2));
  if (!now) {
    page.push_back("connecting to " + ShowName(address));
  } else {
    page = Lines(ServerSummary(address, *now, paint));
  }
  if (!problem.empty()) page.push_back(paint.Red(problem));
  page.emplace_back();

  const std::vector<TableInfo> tables = Tables();
  const auto found = std::ranges::find(tables, selected, &TableInfo::name);
  const size_t chosen = found == tables.end() ? 0 : static_cast<size_t>(found - tables.begin());
  std::vector<std::string> detail;
  if (shows_help) {
    detail = Lines(kHelp);
  } else if (shows_detail && now && !tables.empty()) {
    detail = Lines(TableDetail(tables[chosen], now->info.waiters, paint));
  }
  // The tables get the rows that the details leave, and at least a third.
  const size_t left = rows - std::min(rows, page.size() + 2);
  const size_t list_rows = std::max(left - std::min(left, detail.size()), std::max(left / 3, size_t{1}));

  Columns columns;
  columns.AddColumn("TABLE");
  for (const char* heading : {"SIZE", "MAX", "BYTES", "INSERTS/s", "SAMPLES/s", "INSERTS", "SAMPLES"}) {
    columns.AddColumn(heading, Columns::Align::kRight);
  }
  columns.AddColumn("WAITING");
  for (const TableInfo& table : tables) {
    const Rates rates = RatesOf(table, *now, before ? &*before : nullptr);
    const std::string waiting = Waiting(table);
    columns.AddRow({ShowName(table.name, 40), ShowCount(table.current_size), ShowCount(table.max_size),
                    ShowBytes(table.referenced_bytes), ShowRate(rates.inserts), ShowRate(rates.samples),
                    ShowCount(table.counters.inserts), ShowCount(table.counters.samples),
                    waiting.empty() ? "-" : waiting});
  }
  std::vector<std::string> list = Lines(columns.ToString(paint));
  if (now) page.push_back(list.front());
  list.erase(list.begin());
  // The selected table is visible.
  const size_t first = chosen < list_rows ? 0 : chosen - list_rows + 1;
  for (size_t i = first; i < std::min(list.size(), first + list_rows); ++i) {
    const bool waits = tables[i].waiting_inserts + tables[i].waiting_samples > 0;
    page.push_back(i == chosen ? paint.Reverse(list[i]) : waits ? paint.Yellow(list[i]) : list[i]);
  }
  if (now && tables.empty()) page.emplace_back("no tables");
  for (std::string& line : detail) page.push_back(std::move(line));
  if (now && !shows_help) {
    for (std::string& line : Lines(RowTablesPage(*now, before ? &*before : nullptr, paint))) {
      page.push_back(std::move(line));
    }
  }

  if (page.size() > rows - 1) page.resize(rows - 1);
  while (page.size() < rows - 1) page.emplace_back();
  const auto by = std::ranges::find(kOrders, order, [](const auto& entry) { return entry.order; });
  page.push_back(paint.Dim(std::string("by ") + by->name + (is_reversed ? ", reversed" : "") + "; every " +
                           ShowNumber(every_seconds) + " s" + (is_paused ? "; paused" : "") +
                           "; ? help, q end"));
  return Join(page, "\n") + "\n";
}

}  // namespace reverb::program
