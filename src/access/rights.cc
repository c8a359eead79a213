#include "access/rights.h"

namespace reverb {

std::string_view RightName(Right right) {
  switch (right) {
    case Right::kRead:
      return "read";
    case Right::kWrite:
      return "write";
    case Right::kAdmin:
      return "admin";
  }
  return "";
}

namespace internal {

std::optional<Need> NeedOf(Method method) {
  switch (method) {
    case Method::kInfo:
      return Need{};  // writers need the signatures; tables that the token does not name are left out
    case Method::kSample:
    case Method::kInspect:
    case Method::kSettleLeases:
      return Need::Of(Right::kRead);
    case Method::kInsert:
    case Method::kMutate:
      return Need::Of(Right::kWrite);
    case Method::kReset:
    case Method::kSetRateLimiter:
    case Method::kCreateTable:
    case Method::kRemoveTable:
    case Method::kChangeTable:
      return Need::Of(Right::kAdmin);
    case Method::kCheckpoint:
      return Need{.needs_right = true, .right = Right::kAdmin, .for_all_tables = true};
    case Method::kRows:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Need> NeedOf(RowsVerb verb) {
  switch (verb) {
    case RowsVerb::kNone:
      return std::nullopt;
    case RowsVerb::kInfo:
    case RowsVerb::kCancel:  // of an operation of the client itself, whose number nobody else knows
      return Need{};
    case RowsVerb::kGetState:
    case RowsVerb::kClaim:
    case RowsVerb::kSettle:
    case RowsVerb::kGet:
    case RowsVerb::kList:
      return Need::Of(Right::kRead);
    case RowsVerb::kPut:
    case RowsVerb::kEnd:
    case RowsVerb::kSetVersion:
    case RowsVerb::kSetState:
    case RowsVerb::kReserve:
    case RowsVerb::kCancelReservation:
      return Need::Of(Right::kWrite);
    case RowsVerb::kDelete:
    case RowsVerb::kCreateTable:
    case RowsVerb::kRemoveTable:
      return Need::Of(Right::kAdmin);
  }
  return std::nullopt;
}

}  // namespace internal
}  // namespace reverb
