// row_operations.h — the arguments of operations on row tables (docs/rows.md).
//
// Threads: values.
#ifndef REVERB_ROW_OPERATIONS_H_
#define REVERB_ROW_OPERATIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reverb {

// What a write does, for all of its rows.
struct RowWriteMode {
  std::vector<std::string> columns = {};
  std::optional<int64_t> version = {};  // absent: that of the table
  bool overwrite = false;               // replaces columns that the row has
  bool append = false;                  // appends to columns of open rows
  bool open = false;                    // new rows are open
  bool create = true;                   // false: unknown keys are refused
  std::string same_length_as = {};      // the columns must have the length of this one; empty = any
  uint64_t reservation = 0;             // counts new rows against this one; 0 = none
};

// Rows to be claimed by a consumer.
struct RowClaim {
  std::string consumer = {};
  std::string holder = {};  // who claims, for messages
  int64_t count = 1;        // rows, at most
  int64_t at_least = 0;     // rows; 0 = count
  std::vector<std::string> needs = {};
  std::vector<std::string> select = {};  // further columns to return, as far as a row has them
  std::string where = {};                // an expression; empty = all rows
  int64_t max_tokens = 0;                // bounds the sum of the lengths of token_column; 0 = unbounded
  std::string token_column = "tokens";
  std::optional<bool> whole_groups = {};  // absent: if the table has groups
  std::chrono::nanoseconds lease = std::chrono::seconds(60);

  // --- One batch for several ranks, each of which claims its part ---
  int64_t ranks = 0;  // above 0: the batch of `count` rows is divided among so many
  int64_t rank = 0;
  std::optional<int64_t> step = {};  // names the batch; absent: the next one of this rank
  bool drop_last = false;            // all ranks get equally many rows: takes fewer if it must
  bool equal_rows = true;            // the numbers of rows (or groups) differ by at most one
  bool split_groups = false;         // with whole groups: rows of one may be in several parts
};

// The numbers are sent: never change them.
enum class RowSettlement : uint8_t {
  kAcknowledge = 0,
  kRelease = 1,
  kExtend = 2,
  kReturn = 3,  // the caller has not got them: releases them, but keeps the part of a rank for its next call
};
inline constexpr int kNumRowSettlements = 4;

// How an open row ends, or not. The numbers are sent: never change them.
enum class RowEnding : uint8_t { kClose = 0, kAbort = 1, kRequeue = 2 };
inline constexpr int kNumRowEndings = 3;

}  // namespace reverb

#endif  // REVERB_ROW_OPERATIONS_H_
