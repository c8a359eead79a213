#include "config_sections.h"

#include <algorithm>
#include <utility>

#include "specs.h"

namespace reverb::program {
namespace {

void ReadKind(ConfigReader& in, const toml::table& table, const toml::node& node, TableOptions* options) {
  const auto kind = in.String(node, "table.kind", "\"queue\" or \"stack\"");
  if (!kind) return;
  if (*kind != "queue" && *kind != "stack") {
    return in.Expected(node, "table.kind", "\"queue\" or \"stack\"; leave the key out for others");
  }
  if (table.get("max_size") == nullptr) {
    return in.Problem(
        node, "key \"table.max_size\" is missing; a " + *kind + " needs one, such as max_size = 1000");
  }
  for (const char* other : {"sampler", "remover", "max_times_sampled", "limiter"}) {
    if (const toml::node* extra = table.get(other)) {
      return in.Problem(*extra, "key " + Quote(std::string("table.") + other) + ": a " + *kind +
                                    " sets it itself; remove this key, or remove kind");
    }
  }
  *options = *kind == "queue" ? TableOptions::Queue(options->name, options->max_size)
                              : TableOptions::Stack(options->name, options->max_size);
}

void ReadSelector(ConfigReader& in, const toml::node& node, const std::string& key,
                  SelectorOptions* options) {
  if (const auto* text = node.as_string()) {
    Result<SelectorOptions> selector = ParseSelector(**text);
    if (in.Check(node, key, selector.status())) *options = *std::move(selector);
    return;
  }
  const toml::table* const table = node.as_table();
  if (table == nullptr) {
    return in.Expected(node, key,
                       "a selector, such as \"uniform\" or { kind = \"prioritized\", exponent = 0.8 }");
  }
  in.CheckKeys(*table, key + ".", {"kind", "exponent", "seed"}, "");
  const toml::node* const kind = table->get("kind");
  if (kind == nullptr) {
    return in.Problem(node, "key " + Quote(key + ".kind") + " is missing." + Suggest("", SelectorNames()));
  }
  const auto name = in.String(*kind, key + ".kind", "a selector, such as \"uniform\"");
  if (!name) return;
  Result<SelectorOptions> selector = ParseSelector(*name);
  if (!in.Check(*kind, key + ".kind", selector.status())) return;
  if (const toml::node* exponent = table->get("exponent")) {
    const std::optional<double> number = exponent->is_number() ? exponent->value<double>() : std::nullopt;
    if (!number || selector->kind != SelectorOptions::Kind::kPrioritized) {
      return in.Expected(*exponent, key + ".exponent",
                         number ? "no exponent with " + *name + ", which has none" : "a number, such as 0.8");
    }
    selector->priority_exponent = *number;
    if (!in.Check(*exponent, key + ".exponent", selector->Validate())) return;
  }
  if (const toml::node* seed = table->get("seed")) {
    if (const auto number = in.Integer(*seed, key + ".seed", 0, INT64_MAX)) {
      selector->seed = static_cast<uint64_t>(*number);
    }
  }
  *options = *std::move(selector);
}

void ReadLimiter(ConfigReader& in, const toml::node& node, RateLimiterOptions* options) {
  LimiterChange change;
  if (const auto* text = node.as_string()) {
    Result<LimiterChange> parsed = ParseLimiter(**text);
    if (!in.Check(node, "table.limiter", parsed.status())) return;
    change = *parsed;
  } else if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) {
      const std::string name = "table.limiter." + std::string(key.str());
      std::string text;
      if (value.is_integer()) text = std::to_string(**value.as_integer());
      if (value.is_floating_point()) text = Format("%.17g", **value.as_floating_point());
      if (const Status status = change.Set(key.str(), text.empty() ? "?" : text); !status.ok()) {
        if (value.is_number())
          return in.Problem(value, "key " + Quote(name) + ": " + std::string(status.message()));
        if (std::ranges::find(LimiterKeys(), key.str()) == LimiterKeys().end()) {
          return in.ProblemAt(key.source().begin, std::string(status.message()));
        }
        return in.Expected(value, name, "a number");
      }
    }
  } else {
    return in.Expected(node, "table.limiter",
                       "a limiter, such as \"min_size=1000\" or { samples_per_insert = 4, min_size = 1000, "
                       "error_buffer = 100 }");
  }
  Result<RateLimiterOptions> limiter = change.ApplyTo(*options);
  if (in.Check(node, "table.limiter", limiter.status())) *options = *std::move(limiter);
}

// Reads tables as dicts, lists as lists and strings as tensors. Records an error in problem_ too.
Result<Signature> ReadSignature(ConfigReader& in, const toml::node& node, const std::string& key,
                                size_t depth) {
  Result<Signature> made = Status::InvalidArgument("not read");
  if (depth > Signature::kMaxDepth) {
    made = Status::InvalidArgument("the structure is deeper than " + std::to_string(Signature::kMaxDepth));
  } else if (const auto* text = node.as_string()) {
    Result<TensorSpec> spec = ParseSpec(**text);
    made = spec.ok() ? Signature::Leaf(*std::move(spec)) : Result<Signature>(spec.status());
  } else if (const toml::table* table = node.as_table()) {
    std::vector<Signature::Field> fields;
    for (const auto& [name, child] : *table) {
      REVERB_ASSIGN_OR_RETURN(Signature field,
                              ReadSignature(in, child, key + "." + std::string(name.str()), depth + 1));
      fields.emplace_back(name.str(), std::move(field));
    }
    made = Signature::Dict(std::move(fields));
  } else if (const toml::array* list = node.as_array()) {
    std::vector<Signature> children;
    for (const toml::node& child : *list) {
      REVERB_ASSIGN_OR_RETURN(Signature element, ReadSignature(in, child, key, depth + 1));
      children.push_back(std::move(element));
    }
    made = Signature::List(std::move(children));
  } else {
    in.Expected(node, key, "a tensor, such as \"float32[84, 84]\", or a structure of these");
    return in.problem();
  }
  if (!in.Check(node, key, made.status())) return in.problem();
  return made;
}

void ReadTable(ConfigReader& in, const toml::table& table, TableOptions* options) {
  const toml::node* const name_node = table.get("name");
  if (name_node == nullptr) {
    // The location of the first key is more useful than that of the table's brackets.
    return in.Problem(table, "key \"table.name\" is missing; expected a name, such as name = \"replay\"");
  }
  if (const auto name = in.String(*name_node, "table.name", "a name")) options->name = *name;
  if (options->name.empty()) in.Expected(*name_node, "table.name", "a name that is not empty");
  const std::string where = " of table " + Quote(options->name);
  in.CheckKeys(table, "",
               {"name", "kind", "sampler", "remover", "max_size", "max_times_sampled", "max_age", "max_bytes",
                "limiter", "signature", "layout"},
               where);
  if (const toml::node* node = table.get("max_size")) {
    if (const auto size = in.Integer(*node, "table.max_size", 1, INT64_MAX)) options->max_size = *size;
  }
  if (const toml::node* node = table.get("kind")) {
    ReadKind(in, table, *node, options);
  } else {
    if (const toml::node* sampler = table.get("sampler")) {
      ReadSelector(in, *sampler, "table.sampler", &options->sampler);
    }
    if (const toml::node* remover = table.get("remover")) {
      ReadSelector(in, *remover, "table.remover", &options->remover);
    }
    if (const toml::node* times = table.get("max_times_sampled")) {
      if (const auto count = in.Integer(*times, "table.max_times_sampled", 0, INT32_MAX)) {
        options->max_times_sampled = static_cast<int32_t>(*count);
      }
    }
    if (const toml::node* limiter = table.get("limiter")) ReadLimiter(in, *limiter, &options->rate_limiter);
  }
  if (const toml::node* node = table.get("max_age")) {
    if (const auto age = in.Time(*node, "table.max_age")) options->max_age = *age;
  }
  if (const toml::node* node = table.get("max_bytes")) {
    if (const auto bytes = in.Bytes(*node, "table.max_bytes")) options->max_bytes = *bytes;
  }
  if (const toml::node* node = table.get("signature")) {
    Result<Signature> signature = ReadSignature(in, *node, "table.signature", 1);
    if (signature.ok()) options->signature = *std::move(signature);
  }
  in.WordInto(table, "layout", "table.", {{"first", LayoutPolicy::kFirst}, {"any", LayoutPolicy::kAny}},
              &options->layout);
  if (in.problem().ok()) {
    if (const Status status = options->Validate(); !status.ok())
      in.Problem(table, std::string(status.message()));
  }
}

}  // namespace

void ReadTables(ConfigReader& in, const toml::node& node, const ConfigTarget& to) {
  const toml::array* const tables = node.as_array();
  if (tables == nullptr || !tables->is_homogeneous(toml::node_type::table)) {
    return in.Expected(node, "table", "tables as [[table]], with two brackets, each with a unique name");
  }
  for (const toml::node& entry : *tables) {
    TableOptions table;
    ReadTable(in, *entry.as_table(), &table);
    if (!in.problem().ok()) return;
    for (const TableOptions& other : to.options->tables) {
      if (other.name != table.name) continue;
      const toml::node* const name = entry.as_table()->get("name");
      in.Problem(name != nullptr ? *name : entry, "key \"table.name\": there are two tables named " +
                                                      Quote(table.name) + "; each needs a unique name");
    }
    to.options->tables.push_back(std::move(table));
  }
}

}  // namespace reverb::program
