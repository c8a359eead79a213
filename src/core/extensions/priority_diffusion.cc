#include <cmath>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "reverb/extensions.h"

namespace reverb {
namespace internal {
namespace {

class PriorityDiffusion final : public TableExtension {
 public:
  explicit PriorityDiffusion(const PriorityDiffusionOptions& options) : options_(options) {}

  std::string name() const override { return "priority_diffusion"; }

  void OnInsert(const ItemView& item, Context&) override { Enter(item); }
  void OnRestore(const ItemView& item) override { Enter(item); }

  void OnDelete(const ItemView& item, Context&) override {
    const auto episode = episodes_.find(item.episode_id);
    if (episode == episodes_.end()) return;
    episode->second.erase(PlaceOf(item));
    if (episode->second.empty()) episodes_.erase(episode);
  }

  void OnUpdate(const ItemView& item, Context& context) override {
    Episode& episode = episodes_[item.episode_id];
    const auto centre = episode.insert_or_assign(PlaceOf(item), item.priority).first;
    double spread = item.priority;
    auto neighbour = centre;
    for (int32_t i = 0; i < options_.radius && neighbour != episode.begin(); ++i) {
      --neighbour;
      Reach(&*neighbour, spread *= options_.decay, context);
    }
    spread = item.priority;
    neighbour = centre;
    for (int32_t i = 0; i < options_.radius && ++neighbour != episode.end(); ++i) {
      Reach(&*neighbour, spread *= options_.decay, context);
    }
  }

  void OnReset() override { episodes_ = {}; }

 private:
  struct Place {
    int64_t first_step = 0;
    uint64_t key = 0;
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): false positive
  };
  using Episode = std::map<Place, double>;  // maps to the priority

  static Place PlaceOf(const ItemView& item) { return {.first_step = item.first_step, .key = item.key}; }

  void Enter(const ItemView& item) {
    Episode& episode = episodes_[item.episode_id];
    episode.insert_or_assign(episode.end(), PlaceOf(item),
                             item.priority);  // most items are the newest of their episode
  }

  void Reach(Episode::value_type* neighbour, double spread, Context& context) const {
    auto& [place, priority] = *neighbour;
    if (!std::isfinite(spread)) return;
    if (options_.rule == PriorityDiffusionOptions::Rule::kMax && spread <= priority) return;
    priority = spread;
    context.UpdatePriority(place.key, spread);
  }

  const PriorityDiffusionOptions options_;
  absl::flat_hash_map<uint64_t, Episode> episodes_;  // contains no empty episode
};

}  // namespace
}  // namespace internal

Status PriorityDiffusionOptions::Validate() const {
  if (!(decay > 0 && decay < 1)) {  // also rejects NaN
    return Status::InvalidArgument("priority diffusion: decay is " + std::to_string(decay) +
                                   "; it must be greater than 0 and less than 1");
  }
  if (radius < 1) {
    return Status::InvalidArgument("priority diffusion: radius is " + std::to_string(radius) +
                                   "; it must be at least 1");
  }
  if (rule != Rule::kMax && rule != Rule::kSet) {
    return Status::InvalidArgument("priority diffusion: rule " + std::to_string(static_cast<int>(rule)) +
                                   " is unknown; it must be kMax or kSet");
  }
  return Status::Ok();
}

Result<std::shared_ptr<TableExtension>> MakePriorityDiffusion(const PriorityDiffusionOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return std::shared_ptr<TableExtension>(std::make_shared<internal::PriorityDiffusion>(options));
}

}  // namespace reverb
