// rights.h — which right each call needs.
//
// Threads: free functions without state.
#ifndef REVERB_ACCESS_RIGHTS_H_
#define REVERB_ACCESS_RIGHTS_H_

#include <optional>

#include "reverb/access.h"
#include "transport/messages.h"
#include "transport/single_calls.h"

namespace reverb::internal {

// What a call needs: a right for its table, for all tables, or just a valid token.
struct Need {
  bool needs_right = false;  // otherwise any token suffices
  Right right = Right::kRead;
  bool for_all_tables = false;

  static constexpr Need Of(Right right) { return {.needs_right = true, .right = right}; }
  bool needs(Right other) const { return needs_right && right == other; }
};

// Returns what a method needs; absent for numbers that are not methods, and for kRows, where the verb decides. A
// priority update that also deletes items needs Right::kAdmin.
std::optional<Need> NeedOf(Method method);
// Returns absent for numbers that are not verbs.
std::optional<Need> NeedOf(RowsVerb verb);

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_RIGHTS_H_
