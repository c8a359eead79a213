// terminal.h — properties of standard input and output, and text in columns and colours.
#ifndef REVERB_APPS_REVERB_TERMINAL_H_
#define REVERB_APPS_REVERB_TERMINAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reverb::program {

// Returns whether to use colours: it is a terminal, NO_COLOR is not set, and TERM is not "dumb".
bool HasColours(int descriptor);
bool IsTerminal(int descriptor);

struct Size {
  int rows = 24;
  int columns = 80;
};
Size TerminalSize();

// Applies colours, or returns the text unchanged if colours are off.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string Bold(std::string_view text) const { return Wrap("1", text); }
  std::string Dim(std::string_view text) const { return Wrap("2", text); }
  std::string Red(std::string_view text) const { return Wrap("31", text); }
  std::string Yellow(std::string_view text) const { return Wrap("33", text); }
  std::string Green(std::string_view text) const { return Wrap("32", text); }
  // Swaps foreground and background, also where colours are off: it marks a selection.
  std::string Reverse(std::string_view text) const;

 private:
  std::string Wrap(const char* code, std::string_view text) const;
  bool on_;
};

// Formats columns as wide as their widest cell. Numbers are right-aligned.
class Columns {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  void AddColumn(std::string heading, Align align = Align::kLeft);
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Returns the lines, the heading first, each with a line break.
  std::string ToString(const Paint& paint, std::string_view indent = "") const;

 private:
  std::vector<std::pair<std::string, Align>> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns the width of a text: escape sequences count 0, each UTF-8 character counts 1.
size_t DisplayWidth(std::string_view text);
// Cuts a line to a width.
std::string CutToWidth(std::string_view line, size_t width);

// Asks for confirmation on the terminal. Returns true for y or yes; false for other answers or without a
// terminal.
bool Confirm(std::string_view question);

// Uses the whole screen until destroyed, then restores its previous contents. Reads single keys without echo.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Shows these lines from the top, as many as fit on the screen.
  void Show(std::string_view text);

 private:
  std::optional<std::string> former_mode_;  // of the keyboard, if it was changed
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_TERMINAL_H_
