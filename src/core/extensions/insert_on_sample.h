// insert_on_sample.h — copies every item into another table when it is first sampled.
//
// The copy has the same key and shares the chunks. Its times_sampled is 1, so it counts as already sampled
// and the target does not copy it further. An asynchronous operation inserts it after the source's lock is
// released: if the target blocks the insert, the sampling caller does not wait. Copies that fail, or are not
// inserted within `timeout`, are dropped, counted and logged.
//
// Owns no table. The source owns the extension; the extension and the copies in flight only hold weak
// references to the target. Two tables may therefore feed each other without keeping each other alive. Copies
// for a destroyed target are dropped.
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
  // Maximum time that a copy waits for the target; absent = forever, zero = try once.
  std::optional<Duration> timeout = {};

  // --- Cost ---
  // Maximum number of copies in flight; > 0. Each keeps its chunks in memory. Further ones are dropped.
  int64_t max_under_way = 65'536;

  // Limits the rate of log messages; must outlive the extension.
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

  // Sets the target of future copies; copies in flight stay with the previous one. Copies are dropped before
  // the first Bind() and after Bind(nullptr). Fails for the table that this extension belongs to.
  Status Bind(const std::shared_ptr<ConcurrentTable>& target);

  Counts counts() const override;

 private:
  class Copier;
  const std::shared_ptr<Copier> copier_;  // shared with the copies in flight
};

// `target` may be null, for tables that feed each other: call Bind() once it exists.
Result<std::shared_ptr<InsertOnSample>> MakeInsertOnSample(const std::shared_ptr<ConcurrentTable>& target,
                                                           const InsertOnSampleOptions& options = {});

}  // namespace reverb::internal

#endif  // REVERB_CORE_EXTENSIONS_INSERT_ON_SAMPLE_H_
