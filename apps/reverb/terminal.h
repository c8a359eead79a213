// terminal.h — what standard output and input are connected to, and text in columns and colours.
#ifndef REVERB_APPS_REVERB_TERMINAL_H_
#define REVERB_APPS_REVERB_TERMINAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reverb::program {

// Whether colours are wanted there: a terminal, no NO_COLOR in the environment, and TERM is not "dumb".
bool HasColours(int descriptor);
bool IsTerminal(int descriptor);

struct Size {
  int rows = 24;
  int columns = 80;
};
Size TerminalSize();

// Colours that leave the text as it is where they are not wanted.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string Bold(std::string_view text) const { return Wrap("1", text); }
  std::string Dim(std::string_view text) const { return Wrap("2", text); }
  std::string Red(std::string_view text) const { return Wrap("31", text); }
  std::string Yellow(std::string_view text) const { return Wrap("33", text); }
  std::string Green(std::string_view text) const { return Wrap("32", text); }

 private:
  std::string Wrap(const char* code, std::string_view text) const;
  bool on_;
};

// Columns as wide as their widest cell. Numbers are set to the right.
class Columns {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  void AddColumn(std::string heading, Align align = Align::kLeft);
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Lines, the heading first, each with a line break.
  std::string ToString(const Paint& paint, std::string_view indent = "") const;

 private:
  std::vector<std::pair<std::string, Align>> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// How many columns a text takes: escape sequences none, each character of UTF-8 one.
size_t DisplayWidth(std::string_view text);
// The first so many columns of a line.
std::string CutToWidth(std::string_view line, size_t width);

// Asks on the terminal; no other answer than y or yes is one. False also where nobody can be asked.
bool Confirm(std::string_view question);

// The whole screen, until destroyed: what was there before comes back. Keys are read one by one, unseen.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Shows these lines from the top, as many as fit.
  void Show(std::string_view text);

 private:
  std::optional<std::string> former_mode_;  // of the keyboard, if it was changed
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TERMINAL_H_
