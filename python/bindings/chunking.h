// chunking.h — the arguments of configure(), for writers whose columns are leaves of nests.
#ifndef REVERB_PYTHON_CHUNKING_H_
#define REVERB_PYTHON_CHUNKING_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "python_api.h"
#include "reverb/writer.h"

namespace reverb::python {

// Settings of columns, by path.
using ColumnChunking = std::vector<std::pair<nb::object, ChunkingOptions>>;

// Returns null for a path without settings.
inline const ChunkingOptions* FindChunking(const ColumnChunking& settings, nb::handle path) {
  const auto found = std::ranges::find_if(settings, [&](const auto& each) { return each.first.equal(path); });
  return found == settings.end() ? nullptr : &found->second;
}

inline void SetChunking(ColumnChunking* settings, nb::handle path, const ChunkingOptions& options) {
  const auto found =
      std::ranges::find_if(*settings, [&](const auto& each) { return each.first.equal(path); });
  if (found != settings->end()) {
    found->second = options;
  } else {
    settings->emplace_back(nb::borrow(path), options);
  }
}

// ValueError for numbers out of range, TypeError for a path that is a list.
inline ChunkingOptions ReadChunking(nb::handle path, int64_t num_keep_alive_refs,
                                    std::optional<int64_t> max_chunk_length) {
  if (num_keep_alive_refs < 1) {
    RaiseValueError("num_keep_alive_refs (" + std::to_string(num_keep_alive_refs) +
                    ") must be a positive integer");
  }
  if (max_chunk_length && (*max_chunk_length < 1 || *max_chunk_length > num_keep_alive_refs)) {
    RaiseValueError("max_chunk_length (" + std::to_string(*max_chunk_length) +
                    ") must be None or between 1 and num_keep_alive_refs (" +
                    std::to_string(num_keep_alive_refs) + ")");
  }
  if (PyObject_Hash(path.ptr()) == -1) nb::raise_python_error();
  return {.num_keep_alive_refs = num_keep_alive_refs, .max_chunk_length = max_chunk_length};
}

}  // namespace reverb::python

#endif  // REVERB_PYTHON_CHUNKING_H_
