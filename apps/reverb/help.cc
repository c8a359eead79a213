#include "help.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "command.h"
#include "exit_codes.h"
#include "text.h"
#include "version.h"

namespace reverb::program {

std::vector<const CLI::App*> Commands(const CLI::App& program) {
  const auto is_visible = [](const CLI::App* app) { return !app->get_group().empty(); };
  std::vector<const CLI::App*> commands;
  for (const CLI::App* app : program.get_subcommands(is_visible)) commands.push_back(app);
  return commands;
}

namespace {

constexpr size_t kWidth = 100;      // of a page
constexpr size_t kLeftColumn = 26;  // of options and commands

constexpr struct {
  int code;
  const char* meaning;
} kExitCodes[] = {{kOk, "success"},
                  {kFailed, "the operation failed"},
                  {kBadUsage, "the command line or the configuration file is invalid"},
                  {kUnreachable, "no Reverb server answers at that address"},
                  {kNotFound, "no such table or checkpoint"},
                  {kTimedOut, "the server answers, but the table did not allow the operation in time"},
                  {kNotConfirmed, "the user did not confirm"}};

// --- Commands and options, for all formats ---

struct OptionText {
  std::string name;  // "--port PORT", "ADDRESS"
  std::string description;
};

// Returns the commands without subcommands, at all levels.
std::vector<const CLI::App*> LastCommands(const CLI::App& program) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* app : Commands(program)) {
    const std::vector<const CLI::App*> below = LastCommands(*app);
    if (below.empty()) commands.push_back(app);
    commands.insert(commands.end(), below.begin(), below.end());
  }
  return commands;
}

// "reverb checkpoint verify".
std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : FullName(*app.get_parent()) + " " + app.get_name();
}

std::string Flags(const CLI::Option& option) {
  std::string name;
  for (const std::string& letter : option.get_snames()) name += (name.empty() ? "-" : ", -") + letter;
  for (const std::string& word : option.get_lnames()) name += (name.empty() ? "--" : ", --") + word;
  return name;
}

OptionText Describe(const CLI::Option& option) {
  OptionText text;
  if (option.get_positional()) {
    text.name = option.get_name(/*positional=*/true);
  } else {
    text.name = Flags(option);
    // Drops the part after a colon: the description contains the allowed values.
    const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
    if (option.get_expected_max() > 0 && !type.empty()) text.name += " " + type;
  }
  text.description = option.get_description();
  if (!option.get_default_str().empty() && option.get_expected_max() > 0) {
    text.description += " (default: " + option.get_default_str() + ")";
  }
  return text;
}

std::vector<OptionText> Options(const CLI::App& app, bool positional) {
  std::vector<OptionText> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() == positional && !option->get_group().empty())
      options.push_back(Describe(*option));
  }
  return options;
}

std::string Usage(const CLI::App& app) {
  std::string usage = FullName(app);
  if (!Commands(app).empty()) usage += " COMMAND";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    std::string word = option->get_name(/*positional=*/true);
    if (option->get_expected_max() > 1) word += " ...";
    usage += option->get_required() ? " " + word : " [" + word + "]";
  }
  usage += " [OPTIONS]";
  return usage;
}

// --- As text ---

// Breaks a text into lines of at most `width`; keeps existing line breaks.
std::vector<std::string> Wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream paragraphs(text);
  std::string paragraph;
  while (std::getline(paragraphs, paragraph)) {
    std::string line = paragraph.substr(0, std::min(paragraph.find_first_not_of(' '), paragraph.size()));
    bool has_word = false;
    std::istringstream words(paragraph);
    std::string word;
    while (words >> word) {
      if (has_word && line.size() + 1 + word.size() > width) {
        lines.push_back(line);
        line.clear();
        has_word = false;
      }
      line += (has_word ? " " : "") + word;
      has_word = true;
    }
    lines.push_back(line);
  }
  return lines;
}

void AddEntry(const std::string& name, const std::string& description, std::string* text) {
  std::string left = "  " + name;
  const std::string indent(kLeftColumn, ' ');
  const std::vector<std::string> lines = Wrap(description, kWidth - kLeftColumn);
  if (left.size() + 2 > kLeftColumn) {
    *text += left + "\n";
    left.clear();
  }
  left.resize(kLeftColumn, ' ');
  for (size_t i = 0; i < lines.size(); ++i) *text += (i == 0 ? left : indent) + lines[i] + "\n";
}

std::string Help(const CLI::App* app, const std::string& /*name*/, CLI::AppFormatMode /*mode*/) {
  std::string text = app->get_description() + ".\n\nUsage: " + Usage(*app) + "\n";
  if (const auto commands = Commands(*app); !commands.empty()) {
    text += "\nCommands:\n";
    for (const CLI::App* command : commands) AddEntry(command->get_name(), command->get_description(), &text);
  }
  if (const auto words = Options(*app, true); !words.empty()) {
    text += "\n";
    for (const OptionText& word : words) AddEntry(word.name, word.description, &text);
  }
  text += "\nOptions:\n";
  for (const OptionText& option : Options(*app, false)) AddEntry(option.name, option.description, &text);
  if (!app->get_footer().empty()) text += "\n" + app->get_footer() + "\n";
  return text;
}

// --- As a man page ---

// Escapes text for roff: control characters at the start of a line, backslashes and dashes.
std::string Roff(const std::string& text) {
  std::string escaped;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) escaped += "\\&";
    at_start = c == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void AddRoffEntry(const OptionText& option, std::string* text) {
  *text += ".TP\n.B " + Roff(option.name) + "\n" + Roff(option.description) + "\n";
}

void SetUpCommands(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    command->set_help_flag("-h,--help", "Print this help and exit");
    command->formatter(std::make_shared<CLI::FormatterLambda>(Help));
    SetUpCommands(command);
  }
}

}  // namespace

void SetUpHelp(CLI::App* program) {
  program->require_subcommand(1);
  program->set_help_flag("-h,--help", "Print this help and exit");
  program->set_version_flag("--version", "reverb " + Version(), "Print the version and exit");
  program->formatter(std::make_shared<CLI::FormatterLambda>(Help));
  std::string footer =
      "`reverb COMMAND --help` explains a command.\n\nExample, in two terminals:\n"
      "  reverb serve --table replay:uniform:fifo:1000000\n"
      "  reverb info localhost:8000 --watch\n\nExit codes:\n";
  for (const auto& [code, meaning] : kExitCodes)
    footer += "  " + std::to_string(code) + "  " + meaning + "\n";
  footer += "\nColours are used on terminals only, unless NO_COLOR is set.";
  program->footer(footer);
  SetUpCommands(program);
}

int ExplainParseError(const CLI::App& program, const CLI::ParseError& error,
                      const std::vector<std::string>& words) {
  // The command that the words name, and the remaining words.
  const CLI::App* command = &program;
  size_t depth = 0;
  for (bool is_known = true; is_known && depth < words.size();) {
    is_known = false;
    for (const CLI::App* app : Commands(*command)) {
      if (words[depth] != app->get_name()) continue;
      command = app;
      is_known = true;
      ++depth;
      break;
    }
  }
  std::vector<std::string> names;
  for (const CLI::App* app : Commands(*command)) names.push_back(app->get_name());
  const std::string who = FullName(*command);
  std::string text = error.what();
  if (!names.empty() && depth == words.size()) {
    text = "a command is missing." + Suggest("", names) + "\nUsage: " + Usage(*command);
  } else if (!names.empty() && !words[depth].starts_with('-')) {
    text = "there is no command " + Quote(words[depth]) + "." + Suggest(words[depth], names);
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) || !names.empty()) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& word : option->get_lnames()) flags.push_back("--" + word);
    }
    // The first word that nothing takes.
    std::string extra;
    for (const std::string& word : names.empty()
                                       ? command->remaining()
                                       : std::vector<std::string>(words.begin() + depth, words.end())) {
      if (word.starts_with('-') || extra.empty()) extra = word;
      if (word.starts_with('-')) break;
    }
    if (extra.starts_with('-')) {
      const std::string flag = extra.substr(0, extra.find('='));
      text = "there is no option " + Quote(flag) + "." + Suggest(flag, flags);
    } else {
      text = "one word too many: " + Quote(extra) + ".";
    }
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
    text += ".\nUsage: " + Usage(*command);
  }
  std::fprintf(stderr, "%s: %s\nSee `%s --help`.\n", who.c_str(), text.c_str(), who.c_str());
  return kBadUsage;
}

std::string ManPage(const CLI::App& program) {
  std::string text =
      ".\\\" Made from the program's help.\n.TH REVERB 1 \"\" \"reverb " + Roff(Version()) +
      "\" \"User Commands\"\n.SH NAME\nreverb \\- a data store for reinforcement\\-learning experience\n"
      ".SH SYNOPSIS\n.B reverb\nCOMMAND [OPTIONS]\n.SH DESCRIPTION\n"
      "Reverb stores the experience of actors in tables, from which learners sample it, and limits the rates "
      "of both. This program serves tables, shows and changes their contents, and measures "
      "performance.\n.SH COMMANDS\n";
  for (const CLI::App* command : LastCommands(program)) {
    text += ".SS " + Roff(FullName(*command)) + "\n" + Roff(command->get_description()) + ".\n.PP\n.B " +
            Roff(Usage(*command)) + "\n";
    for (const bool positional : {true, false}) {
      for (const OptionText& option : Options(*command, positional)) AddRoffEntry(option, &text);
    }
    if (!command->get_footer().empty()) text += ".PP\n.nf\n" + Roff(command->get_footer()) + "\n.fi\n";
  }
  text += ".SH OPTIONS\n";
  for (const OptionText& option : Options(program, false)) AddRoffEntry(option, &text);
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) {
    text += ".TP\n.B " + std::to_string(code) + "\n" + meaning + "\n";
  }
  text +=
      ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf set and not empty, disables colours. Output that does not go to "
      "a terminal never has colours.\n";
  return text;
}

Command AddMan(CLI::App* program) {
  CLI::App* const app = program->add_subcommand("man", "Print the manual page, for man")->group("");
  return {app, [program] {
            std::fputs(ManPage(*program).c_str(), stdout);
            return int{kOk};
          }};
}

}  // namespace reverb::program
