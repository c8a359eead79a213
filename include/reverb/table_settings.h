// table_settings.h — a table's settings and counters as values, wherever they are reported or saved.
#ifndef REVERB_TABLE_SETTINGS_H_
#define REVERB_TABLE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "reverb/rate_limiter.h"
#include "reverb/selector.h"

namespace reverb {

// Which items a table accepts. The layout of an item is the nest and the names of its columns, as far as its
// writer sent them, and the dtype of each column. Lengths, shapes and squeezed columns may differ.
// The numbers are on disk and on the wire: never change them.
enum class LayoutPolicy : uint8_t {
  kFirst = 0,  // items of the layout of the first one; writers check items against a signature instead
  kAny = 1,    // all items; batches that would mix layouts fail
};
inline constexpr int kNumLayoutPolicies = 2;
// Returns "first" or "any".
std::string_view LayoutPolicyName(LayoutPolicy policy);

// TableOptions without the objects that exist only in one process: custom selectors, extensions.
struct TableSettings {
  std::string name = {};
  SelectorOptions sampler = {};
  SelectorOptions remover = {};
  int64_t max_size = 0;
  int32_t max_times_sampled = 0;
  RateLimiterOptions rate_limiter = {};
  std::string signature = {};  // encoded, see signature.h; empty = none
  LayoutPolicy layout = LayoutPolicy::kFirst;
  int64_t max_age_nanos = 0;       // 0 = items do not age
  int64_t max_bytes = 0;           // 0 = no bound of the table's own
  bool created_by_client = false;  // while the server ran; not sent
};

// The counters of a table over its lifetime, besides those of its rate limiter. Checkpoints keep them.
struct TableCounts {
  int64_t num_deleted_episodes = 0;
  int64_t num_unique_samples = 0;
  int64_t evictions = 0;    // by the remover, because of max_size or max_bytes
  int64_t expirations = 0;  // by max_times_sampled
  int64_t explicit_deletes = 0;
  int64_t updates = 0;       // priorities set on existing items
  int64_t unknown_keys = 0;  // updates and deletes of keys that did not exist
  int64_t aged_out = 0;      // removed because of max_age
};

}  // namespace reverb

#endif  // REVERB_TABLE_SETTINGS_H_
