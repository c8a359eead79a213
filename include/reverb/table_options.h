// table_options.h — the options of a table.
#ifndef REVERB_TABLE_OPTIONS_H_
#define REVERB_TABLE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverb/extension.h"
#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "reverb/signature.h"
#include "reverb/status.h"
#include "reverb/table_settings.h"

namespace reverb {

struct TableOptions {
  // --- Behaviour ---
  std::string name = {};  // 1 to kMaxNameBytes bytes of UTF-8; unique within a server

  // Select the items to sample, and the items to remove when the table is full.
  SelectorOptions sampler = SelectorOptions::Uniform();
  SelectorOptions remover = SelectorOptions::Fifo();
  // Create custom selectors instead; called once, when the table is created.
  std::function<std::unique_ptr<Selector>()> custom_sampler = {};
  std::function<std::unique_ptr<Selector>()> custom_remover = {};

  int64_t max_size = 1'000'000;   // items; > 0, at most 2^31 - 2
  int32_t max_times_sampled = 0;  // an item is removed with its n-th sample; < 1 = never
  // Items are removed when they were inserted this long ago, and are not sampled afterwards; zero = never.
  std::chrono::nanoseconds max_age{0};
  // The memory of the chunks that items refer to, each counted once; zero = no bound of the table's own. As with
  // max_size, the remover evicts items to make room for new ones. An item that is larger is refused with
  // RESOURCE_EXHAUSTED.
  int64_t max_bytes = 0;
  RateLimiterOptions rate_limiter = {};

  // Run in order, under the table's lock. Each object may serve one table.
  std::vector<std::shared_ptr<TableExtension>> extensions = {};

  // Describes the items. Stored and reported; writers and samplers check against it.
  std::optional<Signature> signature = {};
  // Which items writers may insert if there is no signature. With kFirst, an item of another layout than the
  // first one is refused with INVALID_ARGUMENT; Reset() lets the next item determine the layout.
  LayoutPolicy layout = LayoutPolicy::kFirst;

  // Set by a server for tables that clients create. A server that loads a checkpoint creates them again.
  bool created_by_client = false;

  // Limits of what clients accept (docs/protocol.md).
  static constexpr size_t kMaxNameBytes = size_t{1} << 10;
  static constexpr size_t kMaxSignatureBytes = size_t{1} << 24;  // encoded

  static TableOptions Queue(std::string name, int64_t max_size);
  static TableOptions Stack(std::string name, int64_t max_size);

  Status Validate() const;
  // Returns the options that are reported and saved in checkpoints.
  TableSettings Settings() const;
  // Returns the options for saved or received settings. INVALID_ARGUMENT for a signature that cannot be read
  // and for custom selectors, which exist only in the process that created them.
  static Result<TableOptions> FromSettings(const TableSettings& settings);
};

// Changes of a table that is in use. Absent settings stay.
struct TableChanges {
  // Fewer items than the table holds: the remover evicts the others.
  std::optional<int64_t> max_size = {};
  // An item that was sampled so often already is removed with its next sample; < 1 = never.
  std::optional<int32_t> max_times_sampled = {};
  std::optional<std::chrono::nanoseconds> max_age = {};  // zero = items do not age
  // Less than the table holds: the remover evicts items; zero = no bound.
  std::optional<int64_t> max_bytes = {};
  // The counters stay. Callers that no longer have to wait continue.
  std::optional<RateLimiterOptions> rate_limiter = {};

  bool empty() const { return !max_size && !max_times_sampled && !max_age && !max_bytes && !rate_limiter; }
  // Sets what is present in `options`.
  void ApplyTo(TableOptions* options) const;
};

}  // namespace reverb

#endif  // REVERB_TABLE_OPTIONS_H_
