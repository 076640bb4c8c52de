#include "shell/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>  // here and nowhere else: what the editor is made of
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <sstream>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "base/utf8.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr int kMostRemembered = 1000;
constexpr size_t kMostPasted = 256 << 10;  // characters
constexpr size_t kMostShown = 30;          // choices of a completion
constexpr int kPasteWaitMs = 1000;         // between two characters of a paste

// A terminal that is asked to sends a paste between two marks.
constexpr const char* kPasteMarksOn = "\033[?2004h";
constexpr const char* kPasteMarksOff = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

std::string to_utf8(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) append_utf8(static_cast<char32_t>(c), out);
  return out;
}

std::wstring to_wide(std::string_view text) {
  std::wstring out;
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    out += head.kind == Utf8Head::Kind::valid ? static_cast<wchar_t>(head.code_point) : L'\uFFFD';
    text.remove_prefix(head.bytes);
  }
  return out;
}

bool waits_for_reading(int milliseconds) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, milliseconds) == 1;
}

// Line breaks and tabs stay; what else controls a terminal does not.
std::wstring as_message(std::wstring text) {
  std::replace(text.begin(), text.end(), L'\r', L'\n');
  std::wstring clean = to_wide(only_text(to_utf8(text)));
  clean.erase(clean.find_last_not_of(L'\n') + 1);  // Enter is the user's to press
  return clean;
}

std::string common_beginning(const std::vector<std::string>& texts) {
  std::string_view common = texts.front();
  for (const std::string& text : texts) {
    const auto end = std::mismatch(common.begin(), common.end(), text.begin(), text.end()).first;
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  return std::string(common.substr(0, valid_utf8_prefix(common)));
}

// Side by side where they fit, else below each other.
std::string list_of(const std::vector<std::string>& choices) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(choices.size(), kMostShown); ++i)
    shown.push_back(printable_line(choices[i]));
  if (choices.size() > kMostShown)
    shown.push_back(fmt::format("and {} more", choices.size() - kMostShown));
  const std::string line = fmt::format("{}", fmt::join(shown, "  "));
  return columns_of(line) <= stderr_columns() ? line : fmt::format("{}", fmt::join(shown, "\n"));
}

// While libedit draws, whose functions no exception passes.
void show_below(const std::string& line) {
  std::fputs(("\n" + line + "\n").c_str(), stderr);
}

bool is_continued(const std::string& line) {
  const size_t last = line.find_last_not_of('\\');
  const size_t backslashes = line.size() - (last == std::string::npos ? 0 : last + 1);
  return backslashes % 2 == 1;
}

}  // namespace

struct LineEditor::State {
  explicit State(Completer completer);
  ~State();

  TypedLine read(const wchar_t* shown_prompt);

  // What keys do.
  static State& of(EditLine* edited);
  static unsigned char interrupt(EditLine* edited, wint_t);
  static unsigned char suspend(EditLine* edited, wint_t);
  static unsigned char paste(EditLine* edited, wint_t);
  static unsigned char complete(EditLine* edited, wint_t);

  Completer completer;
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  bool takes_commands = false;  // the terminal; a dumb one would show them
  const wchar_t* prompt = L"";
  bool is_interrupted = false;
};

LineEditor::State::State(Completer its_completer) : completer(std::move(its_completer)) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  editor = ::el_init("tyto", stdin, stderr, stderr);
  history = ::history_winit();
  if (editor == nullptr || history == nullptr) fail_input("terminal", "lines cannot be edited");
  HistEventW event;
  ::history_w(history, &event, H_SETSIZE, kMostRemembered);
  ::history_w(history, &event, H_SETUNIQUE, 1);
  const char* goes_up = nullptr;
  ::el_get(editor, EL_GETTC, "up", &goes_up, nullptr);
  takes_commands = goes_up != nullptr && *goes_up != '\0';

  ::el_wset(editor, EL_CLIENTDATA, this);
  ::el_wset(
      editor, EL_PROMPT, +[](EditLine* edited) {
        return const_cast<wchar_t*>(of(edited).prompt);  // which libedit does not write to
      });
  ::el_wset(editor, EL_SIGNAL, 1);  // else a signal would leave the terminal as it is while editing
  ::el_wset(editor, EL_EDITOR, L"emacs");
  ::el_wset(editor, EL_HIST, history_w, history);
  // Ctrl-C and Ctrl-Z are keys like others here, and so come in their turn, also inside a paste.
  ::el_wset(editor, EL_SETTY, L"-d", L"-isig", nullptr);
  ::el_wset(editor, EL_ADDFN, L"tyto-interrupt", L"Gives the line up", interrupt);
  ::el_wset(editor, EL_ADDFN, L"tyto-suspend", L"Stops the program until the shell's fg", suspend);
  ::el_wset(editor, EL_ADDFN, L"tyto-paste", L"Takes a paste as it is", paste);
  ::el_wset(editor, EL_ADDFN, L"tyto-complete", L"Completes what is typed", complete);
  constexpr std::pair<const wchar_t*, const wchar_t*> kKeys[] = {
      {L"^C", L"tyto-interrupt"},      {L"^Z", L"tyto-suspend"},
      {L"^I", L"tyto-complete"},       {L"\033[200~", L"tyto-paste"},
      {L"\033[201~", L"ed-ignore"},  // an end without a beginning
      {L"^W", L"ed-delete-prev-word"}, {L"\033[3~", L"ed-delete-next-char"},
      {L"\033[1;5D", L"ed-prev-word"}, {L"\033[1;5C", L"em-next-word"},
      {L"\033[H", L"ed-move-to-beg"},  {L"\033[1~", L"ed-move-to-beg"},
      {L"\033[F", L"ed-move-to-end"},  {L"\033[4~", L"ed-move-to-end"},
  };
  for (const auto& [key, function] : kKeys) ::el_wset(editor, EL_BIND, key, function, nullptr);
}

LineEditor::State::~State() {
  if (editor != nullptr) ::el_end(editor);
  if (history != nullptr) ::history_wend(history);
}

LineEditor::State& LineEditor::State::of(EditLine* edited) {
  void* state = nullptr;
  ::el_wget(edited, EL_CLIENTDATA, &state);
  return *static_cast<State*>(state);
}

unsigned char LineEditor::State::interrupt(EditLine* edited, wint_t) {
  of(edited).is_interrupted = true;
  return CC_NEWLINE;
}

unsigned char LineEditor::State::suspend(EditLine* edited, wint_t) {
  ::el_wset(edited, EL_PREP_TERM, 0);
  struct sigaction stop = {}, before = {};
  stop.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &stop, &before);
  ::kill(0, SIGTSTP);  // the whole job, as the terminal would
  ::sigaction(SIGTSTP, &before, nullptr);
  ::el_wset(edited, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

unsigned char LineEditor::State::paste(EditLine* edited, wint_t) {
  std::wstring text;
  bool is_too_long = false;
  while (!text.ends_with(kPasteEnd) && waits_for_reading(kPasteWaitMs)) {
    wchar_t next = 0;
    if (::el_wgetc(edited, &next) != 1) break;
    text += next;
    if (text.size() <= kMostPasted + kPasteEnd.size()) continue;
    is_too_long = true;
    text.erase(0, text.size() - kPasteEnd.size());
  }
  if (is_too_long) {
    show_below(
        fmt::format("The paste is longer than {} characters and was left out.", kMostPasted));
    return CC_REDISPLAY;
  }
  if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
  text = as_message(std::move(text));
  return ::el_winsertstr(edited, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char LineEditor::State::complete(EditLine* edited, wint_t) {
  const LineInfoW* line = ::el_wline(edited);
  const std::string before = to_utf8({line->buffer, line->cursor});
  const Completions found = of(edited).completer(before);
  if (found.choices.empty()) return CC_ERROR;
  const std::string common = common_beginning(found.choices);
  const size_t typed = before.size() - found.from;
  if (common.size() > typed) {
    ::el_winsertstr(edited, to_wide(std::string_view(common).substr(typed)).c_str());
    return CC_REFRESH;
  }
  if (found.choices.size() == 1) return CC_NORM;
  show_below(list_of(found.choices));
  return CC_REDISPLAY;
}

TypedLine LineEditor::State::read(const wchar_t* shown_prompt) {
  prompt = shown_prompt;
  is_interrupted = false;
  ::el_wset(editor, EL_PREP_TERM, 1);  // before the prompt is there to be answered
  if (takes_commands) std::fputs(kPasteMarksOn, stderr);
  int length = 0;
  errno = 0;
  const wchar_t* line = ::el_wgets(editor, &length);
  const bool is_signalled = line == nullptr && length < 0 && errno == EINTR;
  if (takes_commands) std::fputs(kPasteMarksOff, stderr);
  TypedLine result;
  if (line != nullptr) result.text = to_utf8({line, static_cast<size_t>(length)});
  if (is_interrupted || is_signalled) {
    // Below the cursor stands what is left of a line that takes several rows.
    std::fputs(takes_commands ? "^C\033[J\n" : "^C\n", stderr);
    result.kind = TypedLine::Kind::interrupted;
  } else if (line != nullptr) {
    result.kind = TypedLine::Kind::line;
    if (result.text.ends_with('\n')) result.text.pop_back();
  }
  std::fflush(stderr);
  return result;
}

LineEditor::LineEditor(Completer completer)
    : state_(std::make_unique<State>(std::move(completer))) {}

LineEditor::~LineEditor() = default;

TypedLine LineEditor::read() {
  TypedLine whole = state_->read(L"> ");
  while (whole.kind == TypedLine::Kind::line && is_continued(whole.text)) {
    whole.text.back() = '\n';
    const TypedLine more = state_->read(L"… ");
    whole.kind = more.kind;
    whole.text += more.text;
  }
  return whole;
}

void LineEditor::remember(const std::string& line) {
  HistEventW event;
  ::history_w(state_->history, &event, H_ENTER, to_wide(line).c_str());
}

bool LineEditor::is_possible() {
  return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLineBytes = 16 << 10;
constexpr uint64_t kMostHistoryBytes = 256 << 10;  // for each of the two files

// A full file becomes the older one, whose lines are still read, and a new one is begun.
fs::path older(const fs::path& path) {
  return path.string() + ".old";
}

void read_lines(const fs::path& path, std::vector<std::string>& lines) {
  std::error_code unreadable;  // then reading it says why
  if (!fs::exists(path, unreadable) && !unreadable) return;
  std::istringstream text(read_last_lines(path, kMostHistoryBytes + kMostLineBytes * 6));
  for (std::string line; std::getline(text, line);) {
    try {
      lines.emplace_back(Json::parse(line, path.string()).as_string());
    } catch (const Error&) {
    }
  }
}

}  // namespace

InputHistory::InputHistory(fs::path path) : path_(std::move(path)) {}

std::vector<std::string> InputHistory::read() const {
  std::vector<std::string> lines;
  read_lines(older(path_), lines);
  read_lines(path_, lines);
  return lines;
}

void InputHistory::add(const std::string& line) const {
  if (!is_kept(line)) return;
  const std::string json = JsonValue(line).dump();
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  const FileLock lock(path_.string() + ".lock");  // one renames, others append
  append_line(path_, json, Readers::owner);
  if (fs::file_size(path_, error) > kMostHistoryBytes && !error)
    fs::rename(path_, older(path_), error);
}

bool InputHistory::is_kept(const std::string& line) {
  return !line.empty() && line.front() != ' ' && line.size() <= kMostLineBytes;
}

}  // namespace tyto
