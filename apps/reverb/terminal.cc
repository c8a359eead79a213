#include "terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace reverb::program {

bool IsTerminal(int descriptor) { return isatty(descriptor) == 1; }

bool HasColours(int descriptor) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  return IsTerminal(descriptor) && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

Size TerminalSize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

std::string Paint::Wrap(const char* code, std::string_view text) const {
  if (!on_ || text.empty()) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::string Paint::Reverse(std::string_view text) const { return "\033[7m" + std::string(text) + "\033[0m"; }

// --- Width ---

namespace {

// Returns the bytes and the width of the first character or escape sequence of `text`.
std::pair<size_t, size_t> NextCharacter(std::string_view text) {
  if (text.starts_with("\033[")) {
    const size_t end = text.find_first_not_of("0123456789;", 2);
    return {end == std::string_view::npos ? text.size() : end + 1, 0};
  }
  size_t size = 1;
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) ++size;
  return {size, 1};
}

}  // namespace

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const auto [bytes, columns] = NextCharacter(text);
    width += columns;
    text.remove_prefix(bytes);
  }
  return width;
}

std::string CutToWidth(std::string_view line, size_t width) {
  std::string cut;
  size_t used = 0;
  while (!line.empty()) {
    const auto [bytes, columns] = NextCharacter(line);
    // Keeps escape sequences after the cut: they reset colours.
    if (columns == 0 || used + columns <= width) cut += line.substr(0, bytes);
    used += columns;
    line.remove_prefix(bytes);
  }
  return cut;
}

// --- Columns ---

void Columns::AddColumn(std::string heading, Align align) {
  headings_.emplace_back(std::move(heading), align);
}

std::string Columns::ToString(const Paint& paint, std::string_view indent) const {
  std::vector<size_t> widths;
  for (const auto& [heading, align] : headings_) widths.push_back(DisplayWidth(heading));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells, bool is_heading) {
    std::string line(indent);
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string gap(widths[i] - DisplayWidth(cells[i]), ' ');
      const std::string cell = is_heading ? paint.Dim(cells[i]) : cells[i];
      if (i > 0) line += "  ";
      line += headings_[i].second == Align::kRight ? gap + cell : cell + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  std::vector<std::string> headings;
  for (const auto& [heading, align] : headings_) headings.push_back(heading);
  add(headings, true);
  for (const auto& row : rows_) add(row, false);
  return text;
}

// --- Questions ---

bool Confirm(std::string_view question) {
  if (!IsTerminal(STDIN_FILENO)) return false;
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// --- The whole screen ---

Screen::Screen() {
  termios mode{};
  if (IsTerminal(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &mode) == 0) {
    former_mode_.emplace(reinterpret_cast<const char*>(&mode), sizeof(mode));
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  }
  std::fputs("\033[?1049h\033[?25l", stdout);  // alternate screen, no cursor
  std::fflush(stdout);
}

Screen::~Screen() {
  std::fputs("\033[?25h\033[?1049l", stdout);
  std::fflush(stdout);
  if (former_mode_) {
    termios mode{};
    std::memcpy(&mode, former_mode_->data(), sizeof(mode));
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
  }
}

void Screen::Show(std::string_view text) {
  const Size size = TerminalSize();
  std::string page = "\033[H";  // to the top; overwrites lines to avoid flicker
  for (int row = 0; row < size.rows && !text.empty(); ++row) {
    const size_t end = text.find('\n');
    if (row > 0) page += "\n";
    page += CutToWidth(text.substr(0, end), static_cast<size_t>(size.columns)) + "\033[K";
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  page += "\033[J";
  std::fwrite(page.data(), 1, page.size(), stdout);
  std::fflush(stdout);
}

}  // namespace reverb::program
