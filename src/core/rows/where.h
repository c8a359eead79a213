// where.h — the expressions that select rows: `reward > 0 and tokens.length < 4096`.
//
// An expression is parsed and checked once, by Parse(), and evaluated for many rows. docs/rows.md describes the
// language. Evaluation never fails and calls nothing outside: a value that a row does not have, a result that
// is not a number and operands of different types are "missing", and missing follows three-valued logic. A row
// matches only if the result is true.
//
// Names are numbered in the order of their first use; a WhereRows resolves them by these numbers.
//
// Ownership: a Where is a value. Threads: immutable after Parse(); Matches() may be called concurrently.
#ifndef REVERB_CORE_ROWS_WHERE_H_
#define REVERB_CORE_ROWS_WHERE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"

namespace reverb::internal {

// A value of an expression. Borrows its text.
struct WhereValue {
  enum class Kind : uint8_t { kMissing, kBool, kInteger, kReal, kText };

  static WhereValue Missing() { return {}; }
  static WhereValue Bool(bool value) { return {.kind = Kind::kBool, .integer = value ? 1 : 0}; }
  static WhereValue Integer(int64_t value) { return {.kind = Kind::kInteger, .integer = value}; }
  // NaN is missing.
  static WhereValue Real(double value);
  static WhereValue Text(std::string_view value) { return {.kind = Kind::kText, .text = value}; }

  bool is_number() const { return kind == Kind::kInteger || kind == Kind::kReal; }
  bool is_true() const { return kind == Kind::kBool && integer != 0; }
  bool is_false() const { return kind == Kind::kBool && integer == 0; }

  Kind kind = Kind::kMissing;
  int64_t integer = 0;  // kBool: 0 or 1
  double real = 0;
  std::string_view text = {};
};

// The values of a row that are not tags.
enum class WhereField : uint8_t { kKey, kGroup, kVersion, kLag };

// The rows that an expression is evaluated for together: those of a group, or a single row. Aggregates are over
// all of them.
class WhereRows {
 public:
  virtual ~WhereRows() = default;
  virtual size_t size() const = 0;
  // Returns whether rows may still join. Aggregates are then missing.
  virtual bool is_complete() const = 0;
  virtual WhereValue Field(size_t row, WhereField field) const = 0;
  // `name`: an index of Where::names().
  virtual WhereValue Tag(size_t row, size_t name) const = 0;
  virtual bool HasColumn(size_t row, size_t name) const = 0;
  // Returns the length of a column; missing if the row does not have it.
  virtual WhereValue Length(size_t row, size_t name) const = 0;
};

class Where {
 public:
  static constexpr size_t kMaxBytes = 4096;
  static constexpr size_t kMaxDepth = 64;
  static constexpr size_t kMaxNodes = 1024;

  // Returns INVALID_ARGUMENT with a copy of the text and a caret below the place of the error.
  static Result<Where> Parse(std::string_view text);

  const std::string& text() const { return text_; }
  // The names of tags and columns that the expression uses, each once.
  const std::vector<std::string>& names() const { return names_; }
  // Returns whether the expression has an aggregate, so that it depends on the other rows.
  bool has_aggregates() const { return has_aggregates_; }

  // Returns whether the expression is true for a row.
  bool Matches(const WhereRows& rows, size_t row) const;
  // Returns whether it is true for all rows.
  bool MatchesAll(const WhereRows& rows) const;

 private:
  friend class WhereParser;

  enum class Op : uint8_t {
    kLiteral,
    kField,
    kTag,
    kLength,
    kHas,
    kNot,
    kNegate,
    kAnd,
    kOr,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kEqual,
    kNotEqual,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder,
    kIn,
    kCount,
    kSum,
    kMean,
    kStd,
    kMin,
    kMax,
    kAny,
    kAll,
  };
  struct Node {
    Op op = Op::kLiteral;
    WhereField field = {};
    uint32_t first = 0;   // operand; kTag, kLength, kHas: a name; kLiteral: of literals_; kIn: the needle
    uint32_t second = 0;  // operand; kIn: first element of elements_; kCount: whether it has an operand
    uint32_t third = 0;   // kIn: end of the elements
  };
  // A literal owns its text, unlike a WhereValue.
  struct Literal {
    WhereValue value;
    std::string text;
  };

  WhereValue Evaluate(uint32_t index, const WhereRows& rows, size_t row) const;
  WhereValue EvaluateLiteral(uint32_t literal) const;
  WhereValue EvaluateIn(const Node& node, const WhereRows& rows, size_t row) const;
  WhereValue EvaluateAggregate(const Node& node, const WhereRows& rows) const;

  std::string text_;
  std::vector<Node> nodes_;
  std::vector<Literal> literals_;
  std::vector<uint32_t> elements_;  // of lists: nodes
  std::vector<std::string> names_;
  uint32_t root_ = 0;
  bool has_aggregates_ = false;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_WHERE_H_
