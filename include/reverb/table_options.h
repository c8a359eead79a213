// table_options.h — the options of a table.
#ifndef REVERB_TABLE_OPTIONS_H_
#define REVERB_TABLE_OPTIONS_H_

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
  RateLimiterOptions rate_limiter = {};

  // Run in order, under the table's lock. Each object may serve one table.
  std::vector<std::shared_ptr<TableExtension>> extensions = {};

  // Describes the items. Stored and reported; writers and samplers check against it.
  std::optional<Signature> signature = {};
  // Which items writers may insert if there is no signature. With kFirst, an item of another layout than the
  // first one is refused with INVALID_ARGUMENT; Reset() lets the next item determine the layout.
  LayoutPolicy layout = LayoutPolicy::kFirst;

  // Limits of what clients accept (docs/protocol.md).
  static constexpr size_t kMaxNameBytes = size_t{1} << 10;
  static constexpr size_t kMaxSignatureBytes = size_t{1} << 24;  // encoded

  static TableOptions Queue(std::string name, int64_t max_size);
  static TableOptions Stack(std::string name, int64_t max_size);

  Status Validate() const;
  // Returns the options that are reported and saved in checkpoints.
  TableSettings Settings() const;
};

}  // namespace reverb

#endif  // REVERB_TABLE_OPTIONS_H_
