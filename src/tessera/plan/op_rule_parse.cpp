#include <algorithm>
#include <string>
#include <string_view>

#include "tessera/base/check.h"
#include "tessera/layout/text_reader.h"
#include "tessera/plan/op_rule.h"

namespace tessera {
namespace {

constexpr const char* kExample = "mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool contains(const std::vector<std::int64_t>& items, std::int64_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

/// The first output that lacks the factor.
std::optional<std::size_t> output_without(const OpRule& rule, std::int64_t factor) {
  for (std::size_t i = 0; i < rule.outputs().size(); ++i) {
    if (!contains(rule.outputs()[i], factor)) return i;
  }
  return std::nullopt;
}

bool in_some_input(const OpRule& rule, std::int64_t factor) {
  return std::any_of(rule.inputs().begin(), rule.inputs().end(),
                     [&](const OpRule::Dims& dims) { return contains(dims, factor); });
}

/// Checks what a text that has the right form may still mean wrongly.
class MeaningCheck {
 public:
  MeaningCheck(std::string_view text, const OpRule& rule) : text_(text), rule_(rule) {}

  void run() const {
    for (std::size_t i = 0; i < rule_.factors().size(); ++i) {
      const Factor& factor = rule_.factors()[i];
      const auto index = static_cast<std::int64_t>(i);
      if (factor.kind == FactorKind::pass_through) check_pass_through(factor, index);
      if (is_reducing(factor)) check_reducing(factor, index);
      check_inputs(factor.addends, concat("the braces of factor ", factor.name));
    }
    check_ops_mix();
    check_linear();
  }

 private:
  static bool is_reducing(const Factor& factor) {
    return factor.kind == FactorKind::reduce || factor.kind == FactorKind::mean;
  }

  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    TESSERA_CHECK(condition, "OpRule::parse: \"", text_, "\" given; ", concat(parts...));
  }

  void check_pass_through(const Factor& factor, std::int64_t index) const {
    const auto missing = output_without(rule_, index);
    require(!missing, "factor ", factor.name, " is missing from output ", missing.value_or(0),
            "; say what becomes of it: ", factor.name, ": sum (or another op), mean or whole");
  }

  void check_reducing(const Factor& factor, std::int64_t index) const {
    require(
        output_without(rule_, index).has_value(), "factor ", factor.name,
        " is in every output, so there is nothing to reduce; drop its clause, or make it whole");
    require(in_some_input(rule_, index), "factor ", factor.name,
            " is in no input, so there is nothing to reduce; drop its clause, or make it whole");
    for (const auto input : factor.addends) {
      const bool exists = input >= 0 && input < std::ssize(rule_.inputs());
      require(!exists || !contains(rule_.inputs()[static_cast<std::size_t>(input)], index),
              "input ", input, " is an addend of factor ", factor.name,
              ", but carries that factor; only inputs without it can be");
    }
  }

  void check_inputs(const std::vector<std::int64_t>& inputs, const std::string& where) const {
    for (auto it = inputs.begin(); it != inputs.end(); ++it) {
      require(*it >= 0 && *it < std::ssize(rule_.inputs()), where, " name input ", *it,
              "; the rule has inputs 0 to ", rule_.inputs().size() - 1);
      require(std::find(inputs.begin(), it, *it) == it, where, " name input ", *it, " twice");
    }
  }

  void check_ops_mix() const {
    const Factor* first = nullptr;
    for (const auto& factor : rule_.factors()) {
      if (!is_reducing(factor)) continue;
      if (first == nullptr) first = &factor;
      require(factor.op == first->op, "factor ", first->name, " reduces by ", first->op,
              " and factor ", factor.name, " by ", factor.op,
              ", and the result would depend on the order; use one op, or make one factor whole");
    }
  }

  void check_linear() const {
    const auto& groups = rule_.linear();
    for (auto it = groups.begin(); it != groups.end(); ++it) {
      check_inputs(*it, "the braces of linear");
      require(std::find(groups.begin(), it, *it) == it, "linear names {", joined(*it, " "),
              "} twice");
    }
    for (const auto& factor : rule_.factors()) {
      require(groups.empty() || !is_reducing(factor) || factor.op == ReduceOp::sum, "factor ",
              factor.name, " reduces by ", factor.op,
              ", which is not linear; drop linear, or reduce by sum or mean");
    }
  }

  std::string_view text_;
  const OpRule& rule_;
};

}  // namespace

/// Reads the form of a rule, left to right.
class OpRule::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), reader_({}) {}

  OpRule parse() {
    read_name();
    read_tensors(rule_.inputs_);
    expect("->", "\"->\" behind the inputs");
    read_tensors(rule_.outputs_);
    while (reader_.accept("|")) {
      do {
        read_clause();
      } while (reader_.accept(","));
    }
    require(reader_.at_end(), "expected \"|\" and a clause, or nothing, behind the outputs");
    MeaningCheck(text_, rule_).run();
    return std::move(rule_);
  }

 private:
  template <typename... Parts>
  void require(bool condition, const Parts&... parts) const {
    TESSERA_CHECK(condition, "OpRule::parse: \"", text_, "\" given; ", concat(parts...),
                  "; write rules as ", kExample);
  }

  void expect(std::string_view token, std::string_view what) {
    require(reader_.accept(token), "expected ", what);
  }

  void read_name() {
    // Names such as aten::add.Tensor hold colons themselves, so the last one ends it.
    const auto tensors = std::min(text_.find('('), text_.find("->"));
    std::string_view head = trimmed(text_.substr(0, tensors));
    const bool named = head.ends_with(':');
    if (named) head = trimmed(head.substr(0, head.size() - 1));
    require(named && !head.empty() && head.find_first_of(" \t\r\n|,") == std::string_view::npos,
            "expected one name and \":\" in front of the inputs");
    rule_.name_ = std::string(head);
    reader_ = detail::TextReader(text_.substr(std::min(tensors, text_.size())));
  }

  void read_tensors(std::vector<Dims>& tensors) {
    do {
      expect("(", "a tensor such as (m k)");
      tensors.push_back(read_dims());
    } while (reader_.accept(","));
  }

  Dims read_dims() {
    Dims dims;
    while (!reader_.accept(")")) {
      if (const auto number = reader_.accept_integer()) {
        require(*number == 1, "the only number among factors is 1, not ", *number);
        dims.push_back(kBroadcast);
        continue;
      }
      const std::string_view name = reader_.accept_name();
      require(!name.empty(), "expected factors, separated by blanks, or 1, up to \")\"");
      require(name != "linear", "linear cannot be the name of a factor");
      const auto factor = static_cast<std::int64_t>(find_or_add(name));
      require(!contains(dims, factor), "factor ", name, " stands twice in one tensor; give each ",
              "dim its own name, and make them whole");
      dims.push_back(factor);
    }
    return dims;
  }

  std::size_t find_or_add(std::string_view name) {
    const std::size_t found = find(name);
    if (found == rule_.factors_.size()) {
      rule_.factors_.push_back({std::string(name), FactorKind::pass_through, ReduceOp::sum, {}});
    }
    return found;
  }

  /// The number of factors when there is none of that name.
  std::size_t find(std::string_view name) const {
    const auto& factors = rule_.factors_;
    const auto found = std::find_if(factors.begin(), factors.end(),
                                    [&](const Factor& factor) { return factor.name == name; });
    return static_cast<std::size_t>(found - factors.begin());
  }

  void read_clause() {
    std::vector<std::string_view> names;
    while (true) {
      const std::string_view name = reader_.accept_name();
      if (name.empty()) break;
      names.push_back(name);
    }
    // Groups behind the first may be spelled without the word.
    if ((names.empty() && !rule_.linear_.empty()) || (names.size() == 1 && names[0] == "linear")) {
      rule_.linear_.push_back(read_group());
      return;
    }
    require(!names.empty(), "expected a clause such as k: sum, s: whole or linear {0}");
    expect(":", "\":\" behind the factors of a clause");
    read_kind(names);
  }

  void read_kind(const std::vector<std::string_view>& names) {
    const std::string word(reader_.accept_name());
    Factor stated{"", FactorKind::reduce, ReduceOp::sum, {}};
    if (word == "whole") {
      stated.kind = FactorKind::whole;
    } else if (word == "mean") {
      stated.kind = FactorKind::mean;
    } else {
      require(word != "avg", "avg would weigh uneven shards alike; write mean");
      require(is_reduce_op(word), "\"", word, "\" is not what a factor can be: allowed are ",
              "whole, mean, sum, min, max, product, band, bor and bxor");
      stated.op = parse_reduce_op(word);
    }
    if (stated.kind != FactorKind::whole && reader_.accept("{")) stated.addends = read_inputs();
    for (const auto name : names) state(name, stated);
  }

  static bool is_reduce_op(std::string_view word) {
    using enum ReduceOp;
    const auto ops = {sum, min, max, product, band, bor, bxor};
    return std::any_of(ops.begin(), ops.end(),
                       [&](ReduceOp op) { return tessera::to_string(op) == word; });
  }

  void state(std::string_view name, const Factor& stated) {
    const std::size_t index = find(name);
    require(index < rule_.factors_.size(), "factor ", name, " of a clause is in no tensor");
    Factor& factor = rule_.factors_[index];
    require(factor.kind == FactorKind::pass_through, "factor ", name, " has two clauses");
    factor.kind = stated.kind;
    factor.op = stated.op;
    factor.addends = stated.addends;
  }

  std::vector<std::int64_t> read_group() {
    expect("{", "a group such as {0 1} behind linear");
    return read_inputs();
  }

  std::vector<std::int64_t> read_inputs() {
    std::vector<std::int64_t> inputs;
    while (!reader_.accept("}")) {
      const auto input = reader_.accept_integer();
      require(input.has_value(), "expected inputs' numbers, separated by blanks, up to \"}\"");
      inputs.push_back(*input);
    }
    require(!inputs.empty(), "expected at least one input between braces");
    return inputs;
  }

  std::string_view text_;
  detail::TextReader reader_;
  OpRule rule_;
};

OpRule OpRule::parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace tessera
