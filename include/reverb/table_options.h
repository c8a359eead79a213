// table_options.h — what a table is created from.
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

  // Which items are sampled, and which are removed when the table is full.
  SelectorOptions sampler = SelectorOptions::Uniform();
  SelectorOptions remover = SelectorOptions::Fifo();
  // Makes a custom selector instead; called once, when the table is created.
  std::function<std::unique_ptr<Selector>()> custom_sampler = {};
  std::function<std::unique_ptr<Selector>()> custom_remover = {};

  int64_t max_size = 1'000'000;   // items; > 0, at most 2^31 - 2
  int32_t max_times_sampled = 0;  // an item is removed with its n-th sample; < 1 = never
  RateLimiterOptions rate_limiter = {};

  // Run in order, under the table's lock. Each object may serve one table.
  std::vector<std::shared_ptr<TableExtension>> extensions = {};

  // What trajectories look like. Kept and reported; writers and samplers check against it.
  std::optional<Signature> signature = {};
  // The user's own bytes about the table, kept and reported unchanged. The Python package stores here what a
  // Signature cannot express, such as bounds. At most kMaxUserDataBytes.
  std::string user_data = {};

  // Clients accept no more than this (docs/protocol.md).
  static constexpr size_t kMaxNameBytes = size_t{1} << 10;
  static constexpr size_t kMaxUserDataBytes = size_t{1} << 24;

  static TableOptions Queue(std::string name, int64_t max_size);
  static TableOptions Stack(std::string name, int64_t max_size);

  Status Validate() const;
  // The part that can be reported and saved.
  TableSettings Settings() const;
};

}  // namespace reverb

#endif  // REVERB_TABLE_OPTIONS_H_
