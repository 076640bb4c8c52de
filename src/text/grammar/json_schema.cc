#include "text/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "text/grammar/gbnf_text.h"
#include "text/grammar/json_keywords.h"
#include "text/grammar/json_number.h"
#include "text/grammar/json_pattern.h"
#include "text/grammar/json_rules.h"

namespace tyto {
namespace {

constexpr size_t kMaxSchemaDepth = 48;  // of schemas in schemas; the JSON itself has a limit, too
const std::string kEmptyClass = "[]";   // a class without characters

std::string times(uint64_t least, std::optional<uint64_t> most) {
  if (!most) return least == 0 ? "*" : fmt::format("{{{},}}", least);
  return fmt::format("{{{},{}}}", least, *most);
}

class SchemaWriter {
 public:
  SchemaWriter(const Json& document, const std::string& root) : document_(document), rules_(root) {}

  std::string write() {
    rules_.define(rules_.root(), rule_for(Schemas{document_.top()}, ""));
    for (; !pending_.empty(); pending_.pop_front())
      rules_.define(pending_.front().first, rule_for(Schemas{pending_.front().second}, ""));
    return rules_.text();
  }

 private:
  // The name of a rule for values that are of all these schemas.
  std::string rule_for(const Schemas& schemas, std::string_view hint) {
    if (++depth_ > kMaxSchemaDepth) schemas[0].fail("schemas nest too deep");
    std::string name;
    if (const auto target = schemas.size() == 1 ? reference(schemas[0]) : std::nullopt) {
      name = *target;
    } else {
      Keywords keywords;
      for (const Json& schema : schemas) document_.collect(schema, keywords);
      name = rule_for(keywords, schemas[0], hint);
    }
    --depth_;
    return name;
  }

  // The rule of what a schema refers to, if that is all it does. It is written once, later: it may
  // refer to itself.
  std::optional<std::string> reference(const Json& schema) {
    if (!schema.is(Json::Type::object)) return std::nullopt;
    const auto target = schema.find("$ref");
    bool is_alone = true;
    schema.for_each_member([&](std::string_view key, const Json&) {
      is_alone &= key == "$ref" || key == "$defs" || key == "definitions" || !is_constraint(key);
    });
    if (!target || !is_alone) return std::nullopt;
    const std::string pointer(target->as_string());
    const auto known = references_.find(pointer);
    if (known != references_.end()) return known->second;
    const Json found = document_.resolve(*target);
    std::string name = rules_.new_name(pointer.substr(pointer.rfind('/') + 1));
    references_.emplace(pointer, name);
    pending_.emplace_back(name, found);
    return name;
  }

  std::string rule_for(const Keywords& keywords, const Json& at, std::string_view hint) {
    document_.spend(at, keywords.size());
    check_supported(keywords);
    if (keywords.contains("enum") || keywords.contains("const")) return listed(keywords, hint);
    for (const std::string_view key : {"anyOf", "oneOf"})
      if (keywords.contains(key)) return choice(keywords, key, hint);

    if (is_any_value(keywords)) return rules_.plain("value");
    std::vector<std::string> rules;
    const std::set<std::string_view> types = types_of(keywords);
    for (const std::string_view type : types)
      if (type != "integer" || !types.contains("number"))
        rules.push_back(of_type(type, keywords, at, hint));
    if (rules.size() == 1) return rules[0];
    return rules_.add(hint,
                      rules.empty() ? kEmptyClass : fmt::format("{}", fmt::join(rules, " | ")));
  }

  // Values that are written out. Other keywords beside them have nothing to add but the type.
  std::string listed(const Keywords& keywords, std::string_view hint) {
    if (const Json* found = find_typed(keywords))
      unsupported(*found, "is not supported beside enum or const");
    const std::set<std::string_view> types = types_of(keywords);
    std::vector<std::string> order;       // of the first list
    std::map<std::string, size_t> lists;  // how many have it
    size_t seen = 0;
    const auto look_at = [&](const Schemas& values) {
      for (const Json& value : values) {
        document_.spend(value, 1);
        const bool fits = std::ranges::any_of(
            types, [&](std::string_view type) { return has_type(value, type); });
        const std::string text = json_text(value);
        if (!fits || lists[text] != seen) continue;
        lists[text] = seen + 1;
        if (seen == 0) order.push_back(text);
      }
      ++seen;
    };
    for (const Json& each : all_of(keywords, "const")) look_at({each});
    for (const Json& list : all_of(keywords, "enum")) {
      Schemas values;
      list.for_each_element([&](size_t, const Json& value) { values.push_back(value); });
      look_at(values);
    }
    std::erase_if(order, [&](const std::string& text) { return lists[text] < seen; });
    std::ranges::transform(order, order.begin(), [](const auto& text) { return gbnf_text(text); });
    return rules_.add(hint,
                      order.empty() ? kEmptyClass : fmt::format("{}", fmt::join(order, " | ")));
  }

  // anyOf, and oneOf as if it were anyOf, beside whatever else is said.
  std::string choice(const Keywords& keywords, std::string_view key, std::string_view hint) {
    Keywords others = keywords;
    others.erase(others.find(key));
    const bool is_alone =
        std::ranges::none_of(others, [](const auto& each) { return is_constraint(each.first); });
    std::vector<std::string> rules;
    keywords.find(key)->second.for_each_element([&](size_t, const Json& alternative) {
      if (is_alone) return rules.push_back(rule_for(Schemas{alternative}, hint));
      Keywords merged = others;
      document_.collect(alternative, merged);
      if (++depth_ > kMaxSchemaDepth) alternative.fail("schemas nest too deep");
      rules.push_back(rule_for(merged, alternative, hint));
      --depth_;
    });
    return rules_.add(hint,
                      rules.empty() ? kEmptyClass : fmt::format("{}", fmt::join(rules, " | ")));
  }

  std::string of_type(std::string_view type, const Keywords& keywords, const Json& at,
                      std::string_view hint) {
    if (type == "object") return object(keywords, hint);
    if (type == "array") return array(keywords, hint);
    if (type == "string") return string(keywords, at, hint);
    if (type == "integer" || type == "number") return number(type, keywords, hint);
    return rules_.plain(type);
  }

  std::string string(const Keywords& keywords, const Json& at, std::string_view hint) {
    const Json* pattern = only(keywords, "pattern");
    const Json* format = only(keywords, "format");
    constexpr std::string_view kFormats[] = {"date", "time", "date-time", "uuid"};
    const bool has_format =
        format != nullptr && std::ranges::find(kFormats, format->as_string()) != std::end(kFormats);
    const Counts length = counts_of(keywords, "minLength", "maxLength");
    const bool has_length = length.least > 0 || length.most;
    if ((pattern != nullptr) + has_format + has_length > 1)
      unsupported(at, "pattern, format and length cannot be combined");
    if (pattern != nullptr)
      return rules_.add(hint, fmt::format("\"\\\"\" {} \"\\\"\"",
                                          gbnf_from_pattern(*pattern, rules_.plain("char"))));
    if (has_format) return rules_.plain(format->as_string());
    if (!has_length) return rules_.plain("string");
    if (length.is_empty()) return rules_.add(hint, kEmptyClass);
    return rules_.add(hint, fmt::format("\"\\\"\" {}{} \"\\\"\"", rules_.plain("char"),
                                        times(length.least, length.most)));
  }

  std::string number(std::string_view type, const Keywords& keywords, std::string_view hint) {
    const NumberBounds bounds = bounds_of(type, keywords);
    if (!bounds.least && !bounds.most) return rules_.plain(type);
    return rules_.add(hint, type == "integer" ? gbnf_integer(bounds) : gbnf_number(bounds));
  }

  std::string array(const Keywords& keywords, std::string_view hint) {
    Schemas first, items;
    for (const std::string_view key : {"prefixItems", "items"})
      for (const Json& each : all_of(keywords, key)) {
        if (!each.is(Json::Type::array)) {
          items.push_back(each);
          continue;
        }
        if (!first.empty()) unsupported(each, "is said twice, by schemas that all hold");
        each.for_each_element([&](size_t, const Json& element) { first.push_back(element); });
      }
    Counts counts = counts_of(keywords, "minItems", "maxItems");
    // Items that have a place are all written, and no others unless they are described.
    counts.least = std::max<uint64_t>(counts.least, first.size());
    if (!first.empty() && items.empty())
      counts.most = std::min<uint64_t>(counts.most.value_or(first.size()), first.size());
    if (counts.is_empty()) return rules_.add(hint, kEmptyClass);
    const std::string ws = rules_.plain("ws");
    const std::string comma = fmt::format("{0} \",\" {0} ", ws);
    std::string content;
    for (const Json& each : first)
      content += (content.empty() ? "" : comma) + rule_for(Schemas{each}, hint) + " ";
    const uint64_t done = first.size();
    if (!counts.most || *counts.most > done) {
      const std::string item = items.empty() ? rules_.plain("value") : rule_for(items, hint);
      if (done == 0 && counts.least <= 1 && counts.most == 1)
        content = item + " ";
      else if (done == 0)
        content = fmt::format("{} ({}{}){} ", item, comma, item, rest_times(counts, 1));
      else
        content += fmt::format("({}{}){} ", comma, item, rest_times(counts, done));
    }
    const bool may_be_empty = counts.least == 0;
    if (content.empty()) return rules_.add(hint, fmt::format("\"[\" {} \"]\"", ws));
    return rules_.add(
        hint, fmt::format("\"[\" {0} ({1}{0}){2} \"]\"", ws, content, may_be_empty ? "?" : ""));
  }

  static std::string rest_times(const Counts& counts, uint64_t done) {
    const uint64_t least = counts.least > done ? counts.least - done : 0;
    return times(least, counts.most ? std::optional(*counts.most - done) : std::nullopt);
  }

  struct Member {
    std::string name;
    Schemas schemas = {};
    bool is_required = false;
    std::string rule = {};
  };

  // In the order in which the schemas name them.
  std::vector<Member> members_of(const Keywords& keywords) {
    std::vector<Member> members;
    std::map<std::string, size_t> places;
    const auto member = [&](std::string_view name) -> Member& {
      const auto [place, is_new] = places.try_emplace(std::string(name), members.size());
      if (is_new) members.push_back({std::string(name)});
      return members[place->second];
    };
    for (const Json& properties : all_of(keywords, "properties"))
      properties.for_each_member([&](std::string_view name, const Json& schema) {
        member(name).schemas.push_back(schema);
      });
    for (const Json& required : all_of(keywords, "required"))
      required.for_each_element(
          [&](size_t, const Json& name) { member(name.as_string()).is_required = true; });
    const std::string ws = rules_.plain("ws");
    for (Member& each : members) {
      const std::string value =
          each.schemas.empty() ? rules_.plain("value") : rule_for(each.schemas, each.name);
      each.rule = rules_.add(
          each.name,
          fmt::format("{} {} \":\" {} {}", gbnf_text(json_string(each.name)), ws, ws, value));
    }
    return members;
  }

  // Members that no schema names, if there may be any: the rule for one.
  std::optional<std::string> other_member(const Keywords& keywords,
                                          const std::vector<Member>& members) {
    Schemas schemas;
    bool is_open = !keywords.contains("properties") && !keywords.contains("additionalProperties");
    for (const Json& each : all_of(keywords, "additionalProperties")) {
      if (each.is(Json::Type::boolean) && !each.as_bool()) return std::nullopt;
      is_open = true;
      if (!each.is(Json::Type::boolean)) schemas.push_back(each);
    }
    if (!is_open) return std::nullopt;
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.name);
    const std::string ws = rules_.plain("ws");
    const std::string value = schemas.empty() ? rules_.plain("value") : rule_for(schemas, "other");
    const std::string name = names.empty() ? rules_.plain("string") : rules_.other_string(names);
    return rules_.add("other", fmt::format("{} {} \":\" {} {}", name, ws, ws, value));
  }

  // Members in their order, each with a comma unless it is the first that is there.
  std::string object(const Keywords& keywords, std::string_view hint) {
    const std::vector<Member> members = members_of(keywords);
    const std::optional<std::string> other = other_member(keywords, members);
    const Counts counts = counts_of(keywords, "minProperties", "maxProperties");
    if (!members.empty())
      for (const std::string_view key : {"minProperties", "maxProperties"})
        if (const auto found = keywords.find(key); found != keywords.end())
          unsupported(found->second, "is not supported beside properties");
    if (counts.is_empty()) return rules_.add(hint, kEmptyClass);

    const std::string ws = rules_.plain("ws");
    const std::string comma = fmt::format("{0} \",\" {0} ", ws);
    std::string tail;  // what may follow when something was there, from the last to the first
    std::vector<std::string> beginnings;
    if (other && counts.most != 0) {
      tail = fmt::format("({}{}){}", comma, *other, rest_times(counts, 1));
      beginnings.push_back(*other + " " + tail);
    }
    bool may_be_empty = counts.least == 0;
    for (size_t i = members.size(); i-- > 0;) {
      const Member& member = members[i];
      if (member.is_required) beginnings.clear();
      may_be_empty &= !member.is_required;
      beginnings.push_back(member.rule + " " + tail);
      if (i == 0) break;
      const std::string next =
          member.is_required ? comma + member.rule : fmt::format("({}{})?", comma, member.rule);
      tail = rules_.add(hint, next + " " + tail);
    }
    std::ranges::reverse(beginnings);
    if (beginnings.empty())
      return rules_.add(hint, may_be_empty ? fmt::format("\"{{\" {} \"}}\"", ws) : kEmptyClass);
    return rules_.add(hint, fmt::format("\"{{\" {0} (({1}) {0}){2} \"}}\"", ws,
                                        fmt::join(beginnings, " | "), may_be_empty ? "?" : ""));
  }

  SchemaDocument document_;
  JsonRules rules_;
  std::map<std::string, std::string> references_;     // from pointers to rules
  std::deque<std::pair<std::string, Json>> pending_;  // rules to be written
  size_t depth_ = 0;
};

}  // namespace

std::string gbnf_from_json_schema(const Json& schema, const std::string& rule) {
  return SchemaWriter(schema, rule).write();
}

Grammar grammar_from_json_schema(const Json& schema) {
  return Grammar(gbnf_from_json_schema(schema));
}

std::string gbnf_of_json(JsonKind kind, const std::string& rule) {
  JsonRules rules(rule);
  rules.define(rule, rules.plain(kind == JsonKind::object ? "object" : "value"));
  return rules.text();
}

}  // namespace tyto
