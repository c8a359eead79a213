// top_view.h — the page of `reverb top`, as text for a window of a given size.
#ifndef REVERB_APPS_REVERB_TOP_VIEW_H_
#define REVERB_APPS_REVERB_TOP_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "info_view.h"
#include "terminal.h"

namespace reverb::program {

// The columns by which tables are sorted.
enum class TopOrder : uint8_t { kName, kSize, kBytes, kInserts, kSamples, kWaiting };

// What the user has chosen, and what is known of the server.
struct TopState {
  std::string address;
  std::optional<Snapshot> now;     // the last answer
  std::optional<Snapshot> before;  // the one before it
  std::string problem;             // why there is no newer answer; empty: there is none
  double every_seconds = 1;

  TopOrder order = TopOrder::kName;
  bool is_reversed = false;
  bool is_paused = false;
  bool shows_detail = true;
  bool shows_help = false;
  std::string selected;  // the name of a table; empty: the first one

  // Applies the keys that were typed, which may be escape sequences. Returns false if the program should end.
  bool Type(std::string_view keys);
  // Returns the tables in the chosen order.
  std::vector<TableInfo> Tables() const;
  // Returns the page: at most size.rows lines, the last of which explains the keys.
  std::string Page(Size size, const Paint& paint) const;

 private:
  void Select(int distance);
  void SortBy(TopOrder by);
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TOP_VIEW_H_
