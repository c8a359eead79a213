// insert_on_sample.h — copies every item into another table when it is first sampled.
//
// The copy has the same key and shares the chunks; its times_sampled is 1, so it counts as sampled
// already and is not copied on from the target. It is inserted after the source's lock is
// released, by an asynchronous operation: where the target makes it wait, the sampling caller does
// not. What fails, or does not get in within `timeout`, is dropped, counted and logged.
//
// Owns no table. The source owns the extension; the extension knows its target weakly, and so
// do the copies on their way. Two tables may therefore feed each other without keeping each other
// alive; whoever owns the tables decides. Copies for a target that is gone are dropped.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_CORE_EXTENSIONS_INSERT_ON_SAMPLE_H_
#define REVERB_CORE_EXTENSIONS_INSERT_ON_SAMPLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "core/table.h"
#include "reverb/extensions.h"
#include "reverb/status.h"

namespace reverb::internal {

struct InsertOnSampleOptions {
  // --- Behaviour ---
  // How long a copy may wait for the target; absent = for ever, zero = try once.
  std::optional<Duration> timeout = {};

  // --- Cost ---
  // Copies on their way at a time; > 0. Each keeps its chunks in memory. One more is dropped.
  int64_t max_under_way = 65'536;

  // Spaces the log lines; must outlive the extension.
  Clock* clock = RealClock();

  Status Validate() const;
};

class InsertOnSample final : public InsertOnSampleExtension {
 public:
  using Counts = InsertOnSampleCounts;

  // REQUIRES: options.Validate().ok(). Use MakeInsertOnSample().
  explicit InsertOnSample(const InsertOnSampleOptions& options);
  ~InsertOnSample() override;

  std::string name() const override { return "insert_on_sample"; }
  void OnSample(const ItemView& item, Context& context) override;

  // Copies go there from now on; those under way stay where they wait. Until the first Bind(), and
  // after Bind(nullptr), they are dropped. Fails for the table that this extension serves.
  Status Bind(const std::shared_ptr<ConcurrentTable>& target);

  Counts counts() const override;

 private:
  class Copier;
  const std::shared_ptr<Copier> copier_;  // shared with the copies under way
};

// `target` may be null, for tables that feed each other: Bind() it when it exists.
Result<std::shared_ptr<InsertOnSample>> MakeInsertOnSample(const std::shared_ptr<ConcurrentTable>& target,
                                                           const InsertOnSampleOptions& options = {});

}  // namespace reverb::internal

#endif  // REVERB_CORE_EXTENSIONS_INSERT_ON_SAMPLE_H_
