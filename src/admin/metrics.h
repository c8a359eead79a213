// metrics.h — the server's state as metrics in Prometheus's text format, version 0.0.4.
//
// Not prometheus-cpp: the distribution has it as shared libraries only, and the program and the wheels are linked with
// static ones. All values are read when they are requested, so that a registry would have nothing to do either.
#ifndef REVERB_ADMIN_METRICS_H_
#define REVERB_ADMIN_METRICS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/admin_source.h"

namespace reverb::internal {

// Writes families of metrics one after the other. Threads: belongs to one thread.
class MetricsWriter {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // Begins a family. `type`: "counter", "gauge" or "histogram".
  void Family(std::string_view name, std::string_view type, std::string_view help);
  // Adds a value of the family. Label values may contain any bytes.
  void Add(const Labels& labels, double value) { AddNamed("", labels, value); }
  void AddHistogram(const Labels& labels, const AdminHistogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void AddNamed(std::string_view suffix, const Labels& labels, double value);

  std::string name_;
  std::string text_;
};

std::string MetricsText(const AdminState& state);

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_METRICS_H_
