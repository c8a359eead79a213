// Reads the expressions of where.h, and checks their types.
#include "core/rows/where.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace reverb::internal {
namespace {

enum class WhereToken : uint8_t { kEnd, kNumber, kText, kName, kSymbol };

// What the checker knows about the type of an operand. The type of a tag is known at evaluation only.
enum class WhereType : uint8_t { kAny, kBool, kNumber, kText };

const char* WhereTypeName(WhereType type) {
  switch (type) {
    case WhereType::kBool:
      return "a truth value";
    case WhereType::kNumber:
      return "a number";
    case WhereType::kText:
      return "a string";
    default:
      return "any value";
  }
}

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsKeyword(std::string_view word) {
  return word == "and" || word == "or" || word == "not" || word == "in" || word == "true" || word == "false";
}

}  // namespace

// A parser for one text, by recursive descent. Errors set error_ and every function then returns early.
class WhereParser {
 public:
  explicit WhereParser(std::string_view text) : text_(text) {}

  Result<Where> Run() {
    if (text_.size() > Where::kMaxBytes) {
      return Status::InvalidArgument("where: the expression has " + std::to_string(text_.size()) +
                                     " bytes, more than " + std::to_string(Where::kMaxBytes) +
                                     "; shorten it, or select by a tag");
    }
    where_.text_ = text_;
    Advance();
    const Operand root = Or();
    if (error_.ok() && token_ != WhereToken::kEnd) {
      Fail(token_at_, token_ == WhereToken::kSymbol && word_ == ")" ? "this ) closes nothing"
                                                                    : "expected and, or, or the end");
    }
    Require(root, WhereType::kBool, "the whole expression");
    if (!error_.ok()) return error_;
    where_.root_ = root.node;
    return std::move(where_);
  }

 private:
  struct Operand {
    uint32_t node = 0;
    WhereType type = WhereType::kAny;
    size_t at = 0;
  };

  // --- Tokens ---

  void Advance() {
    if (!error_.ok()) return;
    while (next_ < text_.size() && (text_[next_] == ' ' || text_[next_] == '\t' || text_[next_] == '\n'))
      ++next_;
    token_at_ = next_;
    if (next_ == text_.size()) {
      token_ = WhereToken::kEnd;
      word_ = {};
      return;
    }
    const char c = text_[next_];
    if (IsDigit(c) || (c == '.' && next_ + 1 < text_.size() && IsDigit(text_[next_ + 1])))
      return ReadNumber();
    if (c == '"' || c == '\'') return ReadText(c);
    if (c == '`') return ReadQuotedName();
    if (IsNameStart(c)) {
      while (next_ < text_.size() && (IsNameStart(text_[next_]) || IsDigit(text_[next_]))) ++next_;
      token_ = WhereToken::kName;
      word_ = text_.substr(token_at_, next_ - token_at_);
      is_quoted_ = false;
      return;
    }
    ReadSymbol();
  }

  void ReadNumber() {
    const char* const first = text_.data() + next_;
    // strtod would also read hexadecimal numbers, and depends on the locale.
    size_t end = next_;
    bool is_real = false;
    while (end < text_.size() && IsDigit(text_[end])) ++end;
    if (end < text_.size() && text_[end] == '.') {
      is_real = true;
      ++end;
      while (end < text_.size() && IsDigit(text_[end])) ++end;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (digits < text_.size() && IsDigit(text_[digits])) {
        is_real = true;
        end = digits;
        while (end < text_.size() && IsDigit(text_[end])) ++end;
      }
    }
    if (end < text_.size() && (IsNameStart(text_[end]) || text_[end] == '.')) {
      return Fail(end, "a number cannot continue with this character");
    }
    const char* const last = text_.data() + end;
    token_ = WhereToken::kNumber;
    if (!is_real) {
      int64_t integer = 0;
      if (std::from_chars(first, last, integer).ec != std::errc()) {
        return Fail(token_at_, "this integer is too large; write it with a decimal point");
      }
      number_ = WhereValue::Integer(integer);
    } else {
      double real = 0;
      if (std::from_chars(first, last, real).ec != std::errc()) {
        return Fail(token_at_, "this number is outside of the range of a double");
      }
      number_ = WhereValue::Real(real);
    }
    next_ = end;
  }

  void ReadText(char quote) {
    literal_.clear();
    for (size_t i = next_ + 1; i < text_.size(); ++i) {
      char c = text_[i];
      if (c == quote) {
        token_ = WhereToken::kText;
        next_ = i + 1;
        return;
      }
      if (c == '\\') {
        ++i;
        if (i == text_.size()) break;
        c = text_[i];
        if (c != '\\' && c != '"' && c != '\'') return Fail(i - 1, "only \\\\, \\\" and \\' are escapes");
      }
      literal_ += c;
    }
    Fail(token_at_, "this string has no end");
  }

  void ReadQuotedName() {
    const size_t end = text_.find('`', next_ + 1);
    if (end == std::string_view::npos) return Fail(token_at_, "this quoted name has no end");
    token_ = WhereToken::kName;
    word_ = text_.substr(next_ + 1, end - next_ - 1);
    is_quoted_ = true;
    if (word_.empty()) return Fail(token_at_, "a name cannot be empty");
    next_ = end + 1;
  }

  void ReadSymbol() {
    for (const std::string_view two : {"<=", ">=", "==", "!="}) {
      if (text_.substr(next_).starts_with(two)) {
        token_ = WhereToken::kSymbol;
        word_ = two;
        next_ += 2;
        return;
      }
    }
    const std::string_view rest = text_.substr(next_);
    if (rest.starts_with("&&")) return Fail(token_at_, "write and instead of &&");
    if (rest.starts_with("||")) return Fail(token_at_, "write or instead of ||");
    if (rest.starts_with("!")) return Fail(token_at_, "write not instead of !");
    if (rest.starts_with("=")) return Fail(token_at_, "write == to compare");
    if (std::string_view("<>+-*/%()[],.").find(text_[next_]) == std::string_view::npos) {
      return Fail(token_at_, "this character has no meaning here");
    }
    token_ = WhereToken::kSymbol;
    word_ = text_.substr(next_, 1);
    ++next_;
  }

  bool IsSymbol(std::string_view symbol) const { return token_ == WhereToken::kSymbol && word_ == symbol; }
  bool IsWord(std::string_view word) const {
    return token_ == WhereToken::kName && !is_quoted_ && word_ == word;
  }
  bool TakeSymbol(std::string_view symbol) {
    if (!error_.ok() || !IsSymbol(symbol)) return false;
    Advance();
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!error_.ok() || !IsWord(word)) return false;
    Advance();
    return true;
  }
  void Expect(std::string_view symbol) {
    if (error_.ok() && !TakeSymbol(symbol)) Fail(token_at_, "expected " + std::string(symbol));
  }

  // --- Errors ---

  void Fail(size_t at, const std::string& what) {
    if (!error_.ok()) return;
    // Shows the line of the place only, and at most about 100 characters of it.
    constexpr size_t kContext = 50;
    size_t first = text_.rfind('\n', at == 0 ? 0 : at - 1);
    first = first == std::string_view::npos || first >= at ? 0 : first + 1;
    size_t last = std::min(text_.find('\n', at), text_.size());
    const bool cut_front = at - first > kContext;
    const bool cut_back = last - at > kContext;
    if (cut_front) first = at - kContext;
    if (cut_back) last = at + kContext;
    std::string shown = cut_front ? "…" : "";
    size_t caret = cut_front ? 1 : 0;
    for (size_t i = first; i < last; ++i) {
      const auto byte = static_cast<uint8_t>(text_[i]);
      shown += byte < 0x20 || byte == 0x7f ? ' ' : text_[i];
      // Bytes that continue a character of UTF-8 take no place of their own.
      if (i < at && (byte & 0xc0) != 0x80) ++caret;
    }
    if (cut_back) shown += "…";
    error_ =
        Status::InvalidArgument("where: " + what + ":\n  " + shown + "\n  " + std::string(caret, ' ') + "^");
  }

  void Require(const Operand& operand, WhereType type, const std::string& who) {
    if (!error_.ok() || operand.type == type || operand.type == WhereType::kAny) return;
    Fail(operand.at, who + " needs " + WhereTypeName(type) + ", not " + WhereTypeName(operand.type));
  }

  // --- Nodes ---

  Operand Add(Where::Node node, WhereType type, size_t at) {
    if (error_.ok() && where_.nodes_.size() == Where::kMaxNodes) {
      Fail(at, "the expression has more than " + std::to_string(Where::kMaxNodes) + " parts");
    }
    if (!error_.ok()) return {};
    where_.nodes_.push_back(node);
    return {static_cast<uint32_t>(where_.nodes_.size() - 1), type, at};
  }
  Operand AddBinary(Where::Op op, const Operand& a, const Operand& b, WhereType type) {
    return Add({.op = op, .first = a.node, .second = b.node}, type, a.at);
  }
  Operand AddLiteral(const WhereValue& value, std::string text, WhereType type, size_t at) {
    if (!error_.ok()) return {};
    where_.literals_.push_back({value, std::move(text)});
    return Add({.op = Where::Op::kLiteral, .first = static_cast<uint32_t>(where_.literals_.size() - 1)}, type,
               at);
  }
  uint32_t NameIndex(std::string_view name) {
    const auto found = std::ranges::find(where_.names_, name);
    if (found != where_.names_.end()) return static_cast<uint32_t>(found - where_.names_.begin());
    where_.names_.emplace_back(name);
    return static_cast<uint32_t>(where_.names_.size() - 1);
  }

  // --- Grammar. Each level counts against the depth, since evaluation recurses alike. ---

  class Deeper {
   public:
    explicit Deeper(WhereParser* parser) : parser_(parser) {
      if (++parser_->depth_ > Where::kMaxDepth) {
        parser_->Fail(parser_->token_at_,
                      "the expression is nested more than " + std::to_string(Where::kMaxDepth) + " deep");
      }
    }
    ~Deeper() { --parser_->depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    WhereParser* const parser_;
  };

  Operand Or() {
    const Deeper deeper(this);
    Operand left = And();
    while (TakeWord("or")) {
      const Operand right = And();
      Require(left, WhereType::kBool, "or");
      Require(right, WhereType::kBool, "or");
      left = AddBinary(Where::Op::kOr, left, right, WhereType::kBool);
    }
    return left;
  }

  Operand And() {
    Operand left = Not();
    while (TakeWord("and")) {
      const Operand right = Not();
      Require(left, WhereType::kBool, "and");
      Require(right, WhereType::kBool, "and");
      left = AddBinary(Where::Op::kAnd, left, right, WhereType::kBool);
    }
    return left;
  }

  Operand Not() {
    if (!error_.ok()) return {};
    const size_t at = token_at_;
    if (!TakeWord("not")) return Comparison();
    const Deeper deeper(this);
    const Operand operand = Not();
    Require(operand, WhereType::kBool, "not");
    return Add({.op = Where::Op::kNot, .first = operand.node}, WhereType::kBool, at);
  }

  std::optional<Where::Op> TakeComparison() {
    static constexpr std::pair<std::string_view, Where::Op> kOps[] = {
        {"<", Where::Op::kLess},          {"<=", Where::Op::kLessEqual}, {">", Where::Op::kGreater},
        {">=", Where::Op::kGreaterEqual}, {"==", Where::Op::kEqual},     {"!=", Where::Op::kNotEqual}};
    for (const auto& [symbol, op] : kOps) {
      if (TakeSymbol(symbol)) return op;
    }
    return std::nullopt;
  }

  Operand Comparison() {
    const Operand left = Sum();
    const size_t at = token_at_;
    if (TakeWord("in")) return In(left);
    if (TakeWord("not")) {
      if (!IsWord("in")) {
        Fail(at, "not after a value must be followed by in");
        return {};
      }
      Advance();
      const Operand in = In(left);
      return Add({.op = Where::Op::kNot, .first = in.node}, WhereType::kBool, left.at);
    }
    const std::optional<Where::Op> op = TakeComparison();
    if (!op) return left;
    const Operand right = Sum();
    if (error_.ok() && left.type != right.type && left.type != WhereType::kAny &&
        right.type != WhereType::kAny) {
      Fail(at,
           std::string("this compares ") + WhereTypeName(left.type) + " with " + WhereTypeName(right.type));
    }
    const size_t second_at = token_at_;
    if (error_.ok() && TakeComparison()) {
      Fail(second_at, "comparisons cannot be chained; write a < b and b < c");
    }
    return AddBinary(*op, left, right, WhereType::kBool);
  }

  Operand In(const Operand& needle) {
    const std::string_view close = IsSymbol("[") ? "]" : ")";
    if (error_.ok() && !TakeSymbol("[") && !TakeSymbol("("))
      Fail(token_at_, "in needs a list, such as (1, 2)");
    const Deeper deeper(this);
    std::vector<uint32_t> elements;
    while (error_.ok() && !IsSymbol(close)) {
      const Operand element = Sum();
      if (error_.ok() && needle.type != WhereType::kAny) {
        Require(element, needle.type, "this list");
      }
      elements.push_back(element.node);
      if (!TakeSymbol(",")) break;
    }
    Expect(close);
    if (!error_.ok()) return {};
    const auto first = static_cast<uint32_t>(where_.elements_.size());
    where_.elements_.insert(where_.elements_.end(), elements.begin(), elements.end());
    return Add({.op = Where::Op::kIn,
                .first = needle.node,
                .second = first,
                .third = static_cast<uint32_t>(where_.elements_.size())},
               WhereType::kBool, needle.at);
  }

  Operand Sum() {
    Operand left = Product();
    while (error_.ok()) {
      const bool adds = IsSymbol("+");
      if (!adds && !IsSymbol("-")) break;
      Advance();
      const Operand right = Product();
      left = Arithmetic(adds ? Where::Op::kAdd : Where::Op::kSubtract, adds ? "+" : "-", left, right);
    }
    return left;
  }

  Operand Product() {
    Operand left = Unary();
    while (error_.ok()) {
      const std::string_view symbol = token_ == WhereToken::kSymbol ? word_ : "";
      if (symbol != "*" && symbol != "/" && symbol != "%") break;
      const Where::Op op = symbol == "*"   ? Where::Op::kMultiply
                           : symbol == "/" ? Where::Op::kDivide
                                           : Where::Op::kRemainder;
      Advance();
      const Operand right = Unary();
      left = Arithmetic(op, std::string(symbol), left, right);
    }
    return left;
  }

  Operand Arithmetic(Where::Op op, const std::string& symbol, const Operand& left, const Operand& right) {
    Require(left, WhereType::kNumber, symbol);
    Require(right, WhereType::kNumber, symbol);
    return AddBinary(op, left, right, WhereType::kNumber);
  }

  Operand Unary() {
    if (!error_.ok()) return {};
    const size_t at = token_at_;
    if (!TakeSymbol("-")) return Primary();
    const Deeper deeper(this);
    const Operand operand = Unary();
    Require(operand, WhereType::kNumber, "-");
    return Add({.op = Where::Op::kNegate, .first = operand.node}, WhereType::kNumber, at);
  }

  Operand Primary() {
    if (!error_.ok()) return {};
    const size_t at = token_at_;
    switch (token_) {
      case WhereToken::kNumber: {
        const WhereValue number = number_;
        Advance();
        return AddLiteral(number, "", WhereType::kNumber, at);
      }
      case WhereToken::kText: {
        std::string text = std::move(literal_);
        Advance();
        return AddLiteral(WhereValue::Text({}), std::move(text), WhereType::kText, at);
      }
      case WhereToken::kName:
        return Name();
      case WhereToken::kSymbol:
        if (TakeSymbol("(")) {
          Operand inner = Or();
          Expect(")");
          inner.at = at;
          return inner;
        }
        [[fallthrough]];
      default:
        Fail(at, token_ == WhereToken::kEnd ? "the expression ends where a value is expected"
                                            : "expected a value: a number, a string, or a name");
        return {};
    }
  }

  Operand Name() {
    const size_t at = token_at_;
    const std::string name(word_);
    const bool is_quoted = is_quoted_;
    if (!is_quoted && (name == "true" || name == "false")) {
      Advance();
      return AddLiteral(WhereValue::Bool(name == "true"), "", WhereType::kBool, at);
    }
    if (!is_quoted && IsKeyword(name)) {
      Fail(at, "expected a value before " + name);
      return {};
    }
    Advance();
    if (!is_quoted && IsSymbol("(")) return Function(name, at);
    if (TakeSymbol(".")) {
      if (error_.ok() && !IsWord("length")) {
        Fail(token_at_, "a column has only .length; quote a name that has a dot: `" + name + ".…`");
        return {};
      }
      Advance();
      return Add({.op = Where::Op::kLength, .first = NameIndex(name)}, WhereType::kNumber, at);
    }
    if (!is_quoted) {
      if (name == "key") return AddField(WhereField::kKey, WhereType::kText, at);
      if (name == "group") return AddField(WhereField::kGroup, WhereType::kText, at);
      if (name == "version") return AddField(WhereField::kVersion, WhereType::kNumber, at);
      if (name == "lag") return AddField(WhereField::kLag, WhereType::kNumber, at);
    }
    return Add({.op = Where::Op::kTag, .first = NameIndex(name)}, WhereType::kAny, at);
  }

  Operand AddField(WhereField field, WhereType type, size_t at) {
    return Add({.op = Where::Op::kField, .field = field}, type, at);
  }

  Operand Function(const std::string& name, size_t at) {
    struct Known {
      std::string_view name;
      Where::Op op;
      WhereType argument;
      WhereType result;
    };
    static constexpr Known kFunctions[] = {
        {"count", Where::Op::kCount, WhereType::kBool, WhereType::kNumber},
        {"sum", Where::Op::kSum, WhereType::kNumber, WhereType::kNumber},
        {"mean", Where::Op::kMean, WhereType::kNumber, WhereType::kNumber},
        {"std", Where::Op::kStd, WhereType::kNumber, WhereType::kNumber},
        {"min", Where::Op::kMin, WhereType::kNumber, WhereType::kNumber},
        {"max", Where::Op::kMax, WhereType::kNumber, WhereType::kNumber},
        {"any", Where::Op::kAny, WhereType::kBool, WhereType::kBool},
        {"all", Where::Op::kAll, WhereType::kBool, WhereType::kBool},
    };
    Advance();  // the parenthesis
    const Deeper deeper(this);
    if (name == "has") {
      if (error_.ok() && token_ != WhereToken::kName)
        Fail(token_at_, "has needs the name of a tag or column");
      if (!error_.ok()) return {};
      const std::string column(word_);
      Advance();
      Expect(")");
      return Add({.op = Where::Op::kHas, .first = NameIndex(column)}, WhereType::kBool, at);
    }
    const auto known = std::ranges::find(kFunctions, name, &Known::name);
    if (known == std::end(kFunctions)) {
      Fail(at, "there is no function " + name +
                   "; the functions are has, count, sum, mean, std, min, max, any and all");
      return {};
    }
    if (in_aggregate_) {
      Fail(at, "an aggregate cannot contain another one");
      return {};
    }
    where_.has_aggregates_ = true;
    if (known->op == Where::Op::kCount && TakeSymbol(")")) {
      return Add({.op = Where::Op::kCount}, WhereType::kNumber, at);
    }
    in_aggregate_ = true;
    const Operand argument = Or();
    in_aggregate_ = false;
    Require(argument, known->argument, name);
    Expect(")");
    return Add({.op = known->op, .first = argument.node, .second = 1}, known->result, at);
  }

  const std::string_view text_;
  Where where_;
  Status error_;
  size_t depth_ = 0;
  bool in_aggregate_ = false;

  // The current token.
  WhereToken token_ = WhereToken::kEnd;
  size_t token_at_ = 0;
  size_t next_ = 0;        // after the token
  std::string_view word_;  // kName, kSymbol
  bool is_quoted_ = false;
  WhereValue number_;
  std::string literal_;  // kText
};

Result<Where> Where::Parse(std::string_view text) { return WhereParser(text).Run(); }

}  // namespace reverb::internal
