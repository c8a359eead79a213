// card_context.h — declares the names that examples in opening comments of public headers use without declaring
// them. The examples are compiled, not run.
#ifndef REVERB_TESTS_DOCS_CARD_CONTEXT_H_
#define REVERB_TESTS_DOCS_CARD_CONTEXT_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "reverb/client.h"
#include "reverb/server.h"
#include "reverb/server_info_fields.h"
#include "reverb/table.h"

namespace card_context {

extern reverb::Client client;
extern const std::vector<reverb::NewRow> new_rows;
extern reverb::Sampler sampler;
extern reverb::TrajectoryWriter writer;
extern reverb::Tensor obs;
extern reverb::Tensor action;
extern std::vector<uint8_t> is_done;

// The columns of a chunk or of an item.
struct Columns {
  operator std::span<const reverb::TensorView>() const;  // NOLINT(google-explicit-constructor)
  operator std::span<const reverb::ItemColumn>() const;  // NOLINT(google-explicit-constructor)
};
extern Columns columns;

// Stand for the work of a program.
template <typename... Values>
void Learn(const Values&...) {}
template <typename... Values>
void Use(const Values&...) {}

}  // namespace card_context

#endif  // REVERB_TESTS_DOCS_CARD_CONTEXT_H_
