#include "device/npu/formats/decode_parameters.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

constexpr const char* kBuildElfAgain = "`make compile-decode-elf` writes it beside the ELF";
constexpr size_t kMostName = 200;

[[noreturn]] void refuse_parameters(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::input, where, what, kBuildElfAgain);
}

struct ParameterRow {
  std::string name, type, kind;
  uint32_t place = 0;
};

template <typename T>
std::optional<T> whole_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

uint32_t parameter_count(const std::string& line, const std::string& where) {
  const size_t end = line.find_last_not_of(" \t\r");
  const auto count = whole_number<uint32_t>(std::string_view(line).substr(0, end + 1));
  if (!count) refuse_parameters(where, "its first line is not the number of parameters");
  if (*count > kMostStateWords)
    refuse_parameters(where, fmt::format("{} parameters, and the firmware's state table has {}",
                                         *count, kMostStateWords));
  return *count;
}

ParameterRow parameter_row(const std::string& line, size_t at, uint32_t count,
                           const std::string& where) {
  std::istringstream words(line);
  ParameterRow row;
  std::string place, more;
  if (!(words >> row.name >> place >> row.type >> row.kind) || words >> more ||
      row.name.size() > kMostName)
    refuse_parameters(where, fmt::format("line {} is not \"name place type kind\"", at));
  const auto value = whole_number<uint32_t>(place);
  if (!value || *value >= count)
    refuse_parameters(where,
                      fmt::format("line {}: the place is not one of 0 to {}", at, count - 1));
  row.place = *value;
  if (row.kind != "addr" && row.kind != "core")
    refuse_parameters(where, fmt::format("line {}: the kind is neither addr nor core", at));
  if (row.type != "i32") refuse_parameters(where, fmt::format("line {}: the type is not i32", at));
  return row;
}

std::vector<ParameterRow> parameter_rows(std::string_view text, const std::string& where) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line)) refuse_parameters(where, "the file is empty");
  const uint32_t count = parameter_count(line, where);
  std::vector<ParameterRow> rows;
  std::set<uint32_t> places;
  while (std::getline(lines, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    rows.push_back(parameter_row(line, rows.size() + 2, count, where));
    if (!places.insert(rows.back().place).second)
      refuse_parameters(where, fmt::format("two parameters have place {}", rows.back().place));
    if (rows.size() > count) break;
  }
  if (rows.size() != count)
    refuse_parameters(where, fmt::format("says that it has {} parameters, and has {}{}", count,
                                         rows.size() > count ? "more than " : "",
                                         std::min(rows.size(), size_t{count})));
  return rows;
}

// The one row of a kind.
const ParameterRow& only_of_kind(const std::vector<ParameterRow>& rows, std::string_view kind,
                                 const std::string& where) {
  const auto is_kind = [&](const ParameterRow& row) { return row.kind == kind; };
  const auto found = std::find_if(rows.begin(), rows.end(), is_kind);
  const auto count = std::count_if(rows.begin(), rows.end(), is_kind);
  if (count != 1)
    refuse_parameters(
        where,
        fmt::format("{} parameters of kind {}, and a decode that Tyto knows has 1", count, kind));
  return *found;
}

// __air_param_argoff_5_x256_m256
void read_append_name(const std::string& name, DecodeParameters& parameters,
                      const std::string& where) {
  constexpr std::string_view kPrefix = "__air_param_argoff_";
  const auto fail = [&] {
    refuse_parameters(
        where,
        "the name of the parameter of kind addr does not tell how it follows from L: it "
        "is not __air_param_argoff_<argument>_x<scale>_<m|p><addend>");
  };
  if (!name.starts_with(kPrefix)) fail();
  const std::string_view rest = std::string_view(name).substr(kPrefix.size());
  const size_t times = rest.find("_x"), plus = rest.rfind('_');
  if (times == std::string_view::npos || plus <= times + 1 || plus + 2 > rest.size()) fail();
  const auto argument = whole_number<uint32_t>(rest.substr(0, times));
  const auto scale = whole_number<int32_t>(rest.substr(times + 2, plus - times - 2));
  const auto addend = whole_number<uint32_t>(rest.substr(plus + 2));
  const char sign = rest[plus + 1];
  if (!argument || !scale || !addend || (sign != 'm' && sign != 'p')) fail();
  parameters.scalar = *argument;
  parameters.scale = *scale;
  parameters.addend = sign == 'm' ? -int64_t{*addend} : int64_t{*addend};
}

int64_t position_elements(const Q4nxLayout& layout) {
  return static_cast<int64_t>(kv_position_bytes(layout) / 2);
}

uint32_t scalar_argument(const Q4nxLayout& layout) {
  return 4 + static_cast<uint32_t>(layout.weight_buffers.size());
}

}  // namespace

DecodeParameters read_decode_parameters(std::string_view text, const std::string& where) {
  const std::vector<ParameterRow> rows = parameter_rows(text, where);
  const ParameterRow& append = only_of_kind(rows, "addr", where);
  const ParameterRow& mask = only_of_kind(rows, "core", where);
  DecodeParameters parameters;
  parameters.words = static_cast<uint32_t>(rows.size());
  parameters.append = append.place;
  parameters.mask = mask.place;
  read_append_name(append.name, parameters, where);
  return parameters;
}

std::string decode_parameters_text(const Q4nxLayout& layout) {
  const int64_t step = position_elements(layout);
  return fmt::format(
      "2\n__air_param_argoff_{0}_x{1}_m{1} 0 i32 addr\n__air_param_attn_blk_0 1 i32 core\n",
      scalar_argument(layout), step);
}

void check_decode_parameters(const DecodeParameters& parameters, const Q4nxLayout& layout,
                             const std::string& where) {
  const auto refuse_model = [&](const std::string& what) {
    throw Error(ErrorCode::input, where, what,
                "`--shape` says for which model a build is; kernels of another one must not run");
  };
  const int64_t step = position_elements(layout);
  if (parameters.scalar != scalar_argument(layout))
    refuse_model(fmt::format("the length is argument {}, and this model's is {}", parameters.scalar,
                             scalar_argument(layout)));
  if (parameters.scale != step || parameters.addend != -step)
    refuse_model(
        fmt::format("position L goes to element {} * L {} {} of a region, where this "
                    "model's goes to {} * L - {}",
                    parameters.scale, parameters.addend < 0 ? '-' : '+',
                    parameters.addend < 0 ? -parameters.addend : parameters.addend, step, step));
}

DecodeParameters check_scratchpad_use(DecodeParameters parameters, const ScratchpadUse& use,
                                      const std::string& where) {
  if (use.bytes != parameters.words * 4)
    refuse_parameters(
        where, fmt::format("its control code has a scratchpad of {} bytes, and the {} parameters "
                           "take {}",
                           use.bytes, parameters.words, parameters.words * 4));
  size_t appends = 0, masks = 0, adding = 0;
  for (const ScratchpadUse::Update& update : use.updates) {
    const bool is_append = update.place == parameters.append && update.is_address;
    const bool is_mask = update.place == parameters.mask && !update.is_address;
    if (is_append && update.element_bytes != 2)
      refuse_parameters(
          where, fmt::format("its control code counts the place of a position in elements of {} "
                             "bytes, not 2",
                             update.element_bytes));
    if (!is_append && !is_mask)
      refuse_parameters(where,
                        fmt::format("its control code takes word {} for {}, and the parameters say "
                                    "otherwise",
                                    update.place, update.is_address ? "an address" : "a core"));
    appends += is_append;
    masks += is_mask;
    adding += is_mask && !update.is_cleared;
  }
  if (appends == 0 || masks == 0)
    refuse_parameters(where, fmt::format("its control code never takes word {}",
                                         appends == 0 ? parameters.append : parameters.mask));
  if (adding != 0 && adding != masks)
    refuse_parameters(where, "its control code clears the words of some cores and not of others");
  parameters.core_adds_up = adding != 0;
  return parameters;
}

}  // namespace tyto
