// The values of expressions, and their evaluation. where_parser.cc reads expressions.
#include "core/rows/where.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace reverb::internal {
namespace {

using Kind = WhereValue::Kind;

double WhereToReal(const WhereValue& value) {
  return value.kind == Kind::kInteger ? static_cast<double>(value.integer) : value.real;
}

// Returns the sign of a - b. Exact for every pair of an int64_t and a double: long double has their 64 bits.
int CompareNumbers(const WhereValue& a, const WhereValue& b) {
  if (a.kind == Kind::kInteger && b.kind == Kind::kInteger) {
    return a.integer < b.integer ? -1 : a.integer > b.integer ? 1 : 0;
  }
  static_assert(std::numeric_limits<long double>::digits >= 64);
  const auto wide = [](const WhereValue& value) {
    return value.kind == Kind::kInteger ? static_cast<long double>(value.integer)
                                        : static_cast<long double>(value.real);
  };
  return wide(a) < wide(b) ? -1 : wide(a) > wide(b) ? 1 : 0;
}

// Returns the sign of a - b; nothing if the values cannot be compared.
std::optional<int> CompareValues(const WhereValue& a, const WhereValue& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (a.kind != b.kind || a.kind == Kind::kMissing) return std::nullopt;
  if (a.kind == Kind::kText) {
    const int order = a.text.compare(b.text);
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  return static_cast<int>(a.integer - b.integer);
}

WhereValue Remainder(const WhereValue& a, const WhereValue& b) {
  // Has the sign of the divisor, as in Python.
  if (a.kind == Kind::kInteger && b.kind == Kind::kInteger) {
    if (b.integer == 0) return WhereValue::Missing();
    if (b.integer == -1) return WhereValue::Integer(0);  // the smallest integer % -1 overflows
    const int64_t rest = a.integer % b.integer;
    return WhereValue::Integer(rest != 0 && (rest < 0) != (b.integer < 0) ? rest + b.integer : rest);
  }
  const double divisor = WhereToReal(b);
  if (divisor == 0) return WhereValue::Missing();
  const double rest = std::fmod(WhereToReal(a), divisor);
  return WhereValue::Real(rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest);
}

}  // namespace

WhereValue WhereValue::Real(double value) {
  if (std::isnan(value)) return Missing();
  return {.kind = Kind::kReal, .real = value};
}

// --- Evaluation -----------------------------------------------------------------------------------

WhereValue Where::EvaluateLiteral(uint32_t literal) const {
  const Literal& found = literals_[literal];
  return found.value.kind == Kind::kText ? WhereValue::Text(found.text) : found.value;
}

WhereValue Where::EvaluateIn(const Node& node, const WhereRows& rows, size_t row) const {
  const WhereValue needle = Evaluate(node.first, rows, row);
  if (needle.kind == Kind::kMissing) return needle;
  bool has_unknown = false;
  for (uint32_t i = node.second; i < node.third; ++i) {
    const std::optional<int> order = CompareValues(needle, Evaluate(elements_[i], rows, row));
    if (order == 0) return WhereValue::Bool(true);
    has_unknown |= !order;
  }
  return has_unknown ? WhereValue::Missing() : WhereValue::Bool(false);
}

WhereValue Where::EvaluateAggregate(const Node& node, const WhereRows& rows) const {
  if (!rows.is_complete() || rows.size() == 0) return WhereValue::Missing();
  if (node.op == Op::kCount && node.second == 0) {
    return WhereValue::Integer(static_cast<int64_t>(rows.size()));
  }
  int64_t num_true = 0;
  int64_t num_unknown = 0;
  double sum = 0;
  WhereValue least;
  WhereValue most;
  for (size_t row = 0; row < rows.size(); ++row) {
    const WhereValue value = Evaluate(node.first, rows, row);
    if (value.kind == Kind::kBool) {
      num_true += value.integer;
    } else if (value.is_number()) {
      sum += WhereToReal(value);
      if (row == 0 || CompareNumbers(value, least) < 0) least = value;
      if (row == 0 || CompareNumbers(value, most) > 0) most = value;
    }
    const bool wants_bool = node.op == Op::kCount || node.op == Op::kAny || node.op == Op::kAll;
    if (wants_bool ? value.kind != Kind::kBool : !value.is_number()) {
      if (!wants_bool) return WhereValue::Missing();
      ++num_unknown;
    }
  }
  const auto count = static_cast<double>(rows.size());
  switch (node.op) {
    case Op::kCount:
      return num_unknown > 0 ? WhereValue::Missing() : WhereValue::Integer(num_true);
    case Op::kAny:
      if (num_true > 0) return WhereValue::Bool(true);
      return num_unknown > 0 ? WhereValue::Missing() : WhereValue::Bool(false);
    case Op::kAll:
      if (num_true + num_unknown < static_cast<int64_t>(rows.size())) return WhereValue::Bool(false);
      return num_unknown > 0 ? WhereValue::Missing() : WhereValue::Bool(true);
    case Op::kSum:
      return WhereValue::Real(sum);
    case Op::kMean:
      return WhereValue::Real(sum / count);
    case Op::kMin:
      return least;
    case Op::kMax:
      return most;
    default:
      break;
  }
  // The standard deviation of all values, as numpy.std. Exactly 0 for equal values, whatever the rounding of the
  // mean.
  if (CompareNumbers(least, most) == 0) return WhereValue::Real(0);
  const double mean = sum / count;
  double squares = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const double difference = WhereToReal(Evaluate(node.first, rows, row)) - mean;
    squares += difference * difference;
  }
  return WhereValue::Real(std::sqrt(squares / count));
}

WhereValue Where::Evaluate(uint32_t index, const WhereRows& rows, size_t row) const {
  const Node& node = nodes_[index];
  switch (node.op) {
    case Op::kLiteral:
      return EvaluateLiteral(node.first);
    case Op::kField:
      return rows.Field(row, node.field);
    case Op::kTag:
      return rows.Tag(row, node.first);
    case Op::kLength:
      return rows.Length(row, node.first);
    case Op::kHas:
      return WhereValue::Bool(rows.Tag(row, node.first).kind != Kind::kMissing ||
                              rows.HasColumn(row, node.first));
    case Op::kNot: {
      const WhereValue value = Evaluate(node.first, rows, row);
      return value.kind == Kind::kBool ? WhereValue::Bool(value.integer == 0) : WhereValue::Missing();
    }
    case Op::kNegate: {
      const WhereValue value = Evaluate(node.first, rows, row);
      if (!value.is_number()) return WhereValue::Missing();
      int64_t negative = 0;
      if (value.kind == Kind::kInteger && !__builtin_sub_overflow(int64_t{0}, value.integer, &negative)) {
        return WhereValue::Integer(negative);
      }
      return WhereValue::Real(-WhereToReal(value));
    }
    case Op::kAnd: {
      const WhereValue left = Evaluate(node.first, rows, row);
      if (left.is_false()) return left;
      const WhereValue right = Evaluate(node.second, rows, row);
      if (right.is_false()) return right;
      return left.is_true() && right.is_true() ? WhereValue::Bool(true) : WhereValue::Missing();
    }
    case Op::kOr: {
      const WhereValue left = Evaluate(node.first, rows, row);
      if (left.is_true()) return left;
      const WhereValue right = Evaluate(node.second, rows, row);
      if (right.is_true()) return right;
      return left.is_false() && right.is_false() ? WhereValue::Bool(false) : WhereValue::Missing();
    }
    case Op::kIn:
      return EvaluateIn(node, rows, row);
    case Op::kCount:
    case Op::kSum:
    case Op::kMean:
    case Op::kStd:
    case Op::kMin:
    case Op::kMax:
    case Op::kAny:
    case Op::kAll:
      return EvaluateAggregate(node, rows);
    default:
      break;
  }
  const WhereValue a = Evaluate(node.first, rows, row);
  const WhereValue b = Evaluate(node.second, rows, row);
  if (node.op >= Op::kLess && node.op <= Op::kNotEqual) {
    const std::optional<int> order = CompareValues(a, b);
    if (!order) return WhereValue::Missing();
    switch (node.op) {
      case Op::kLess:
        return WhereValue::Bool(*order < 0);
      case Op::kLessEqual:
        return WhereValue::Bool(*order <= 0);
      case Op::kGreater:
        return WhereValue::Bool(*order > 0);
      case Op::kGreaterEqual:
        return WhereValue::Bool(*order >= 0);
      case Op::kEqual:
        return WhereValue::Bool(*order == 0);
      default:
        return WhereValue::Bool(*order != 0);
    }
  }
  if (!a.is_number() || !b.is_number()) return WhereValue::Missing();
  const bool are_integers = a.kind == Kind::kInteger && b.kind == Kind::kInteger;
  int64_t whole = 0;
  switch (node.op) {
    case Op::kAdd:
      if (are_integers && !__builtin_add_overflow(a.integer, b.integer, &whole))
        return WhereValue::Integer(whole);
      return WhereValue::Real(WhereToReal(a) + WhereToReal(b));
    case Op::kSubtract:
      if (are_integers && !__builtin_sub_overflow(a.integer, b.integer, &whole))
        return WhereValue::Integer(whole);
      return WhereValue::Real(WhereToReal(a) - WhereToReal(b));
    case Op::kMultiply:
      if (are_integers && !__builtin_mul_overflow(a.integer, b.integer, &whole))
        return WhereValue::Integer(whole);
      return WhereValue::Real(WhereToReal(a) * WhereToReal(b));
    case Op::kRemainder:
      return Remainder(a, b);
    default:
      if (WhereToReal(b) == 0) return WhereValue::Missing();
      return WhereValue::Real(WhereToReal(a) / WhereToReal(b));
  }
}

bool Where::Matches(const WhereRows& rows, size_t row) const { return Evaluate(root_, rows, row).is_true(); }

bool Where::MatchesAll(const WhereRows& rows) const {
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!Matches(rows, row)) return false;
  }
  return true;
}

}  // namespace reverb::internal
