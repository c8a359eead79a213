// `reverb completion`: scripts that complete words in bash, zsh and fish, made from the definitions of the commands.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "exit_codes.h"
#include "help.h"
#include "text.h"

namespace reverb::program {
namespace {

// --- What can be typed ---

// An option, or an argument without a name.
struct WordSpec {
  std::vector<std::string> flags;  // "--port", "-h"; empty for an argument
  std::string value;               // its name: "PORT"; empty for a flag that takes none
  std::string description;         // a few words
  std::vector<std::string> choices;
  bool is_file = false;
  bool may_repeat = false;
};

struct CommandSpec {
  std::string name;
  std::string description;
  std::vector<WordSpec> options;
  std::vector<WordSpec> arguments;
  std::vector<CommandSpec> below;
};

// Returns the words that a check CLI::IsMember allows, from its description "{a,b}".
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos) return choices;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

// Returns the part of a description before the first detail.
std::string Brief(const std::string& description) {
  std::string brief = description.substr(0, description.find_first_of(".;:(\n"));
  brief.erase(brief.find_last_not_of(' ') + 1);
  return brief;
}

WordSpec SpecOf(const CLI::Option& option) {
  WordSpec spec;
  for (const std::string& word : option.get_lnames()) spec.flags.push_back("--" + word);
  for (const std::string& letter : option.get_snames()) spec.flags.push_back("-" + letter);
  const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  if (option.get_positional()) {
    spec.value = option.get_name(/*positional=*/true);
  } else if (option.get_expected_max() > 0) {
    spec.value = type.empty() ? "VALUE" : type;
  }
  spec.description = Brief(option.get_description());
  spec.choices = ChoicesOf(option);
  if (spec.value == "WORKLOAD") {  // the description lists them, with their meanings
    std::istringstream lines(option.get_description());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  ")) spec.choices.push_back(line.substr(2, line.find(':') - 2));
    }
  }
  constexpr std::string_view kFiles[] = {"FILE", "PATH", "OLD", "NEW", "FROM", "TO"};
  spec.is_file = std::ranges::find(kFiles, spec.value) != std::end(kFiles);
  spec.may_repeat =
      option.get_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return spec;
}

CommandSpec SpecOf(const CLI::App& app) {
  CommandSpec spec{.name = app.get_name(), .description = Brief(app.get_description())};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? spec.arguments : spec.options).push_back(SpecOf(*option));
  }
  // The Python package reads the arguments of such a command, which are files mostly.
  if (app.get_prefix_command()) {
    spec.arguments.push_back({.value = "ARGUMENT", .is_file = true, .may_repeat = true});
  }
  for (const CLI::App* sub : Commands(app)) spec.below.push_back(SpecOf(*sub));
  return spec;
}

std::vector<std::string> LongFlags(const CommandSpec& command) {
  std::vector<std::string> flags;
  for (const WordSpec& option : command.options) {
    for (const std::string& flag : option.flags) {
      if (flag.starts_with("--")) flags.push_back(flag);
    }
  }
  return flags;
}

std::vector<std::string> NamesOf(const std::vector<CommandSpec>& commands) {
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) names.push_back(command.name);
  return names;
}

// Escapes the characters of `special` with a backslash.
std::string Escape(std::string_view text, std::string_view special) {
  std::string escaped;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Quotes for all three shells, which agree on words without a single quote in them.
std::string InQuotes(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// --- bash ---

// Returns the branch of a case for a command, without the end.
std::string BashCase(const CommandSpec& command, const std::string& indent) {
  std::string takers, cases;
  std::vector<std::string> words;
  bool takes_paths = false;
  for (const WordSpec& argument : command.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
    takes_paths |= argument.is_file;
  }
  for (const WordSpec& option : command.options) {
    if (option.value.empty() || option.flags.empty()) continue;
    takers += "|" + option.flags.front();
    if (option.is_file) cases += indent + "    " + option.flags.front() + ") files=yes ;;\n";
    if (!option.choices.empty()) {
      cases += indent + "    " + option.flags.front() + ") choices=" + InQuotes(Join(option.choices, " ")) +
               " ;;\n";
    }
  }
  std::string text =
      indent + command.name + ")\n" + indent + "  flags=" + InQuotes(Join(LongFlags(command), " ")) + "\n";
  if (!words.empty()) text += indent + "  words=" + InQuotes(Join(words, " ")) + "\n";
  if (!takers.empty()) text += indent + "  takers=" + InQuotes(takers.substr(1)) + "\n";
  if (takes_paths) text += indent + "  paths=yes\n";
  if (!cases.empty()) text += indent + "  case $before in\n" + cases + indent + "  esac\n";
  return text;
}

std::string BashCompletion(const CommandSpec& program) {
  std::string cases;
  for (const CommandSpec& command : program.below) {
    cases += BashCase(command, "    ");
    if (!command.below.empty()) {
      cases += "      [[ $COMP_CWORD -eq 2 ]] && words=" + InQuotes(Join(NamesOf(command.below), " ")) +
               "\n      case ${COMP_WORDS[2]} in\n";
      for (const CommandSpec& sub : command.below) cases += BashCase(sub, "        ") + "          ;;\n";
      cases += "      esac\n";
    }
    cases += "      ;;\n";
  }
  return "# Completion of `reverb` for bash. Generated from the program's help.\n"
         "# To try it:  source <(reverb completion bash)\n"
         "_reverb() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local flags=" +
         InQuotes(Join(LongFlags(program), " ")) + " words=" + InQuotes(Join(NamesOf(program.below), " ")) +
         " takers='' paths='' files='' choices=''\n"
         "  [[ $COMP_CWORD -eq 1 ]] || words=''\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  if [[ -n $takers && $before == @($takers) ]]; then\n"
         "    # The value of an option: a file, a known word, or no suggestion.\n"
         "    COMPREPLY=()\n"
         "    [[ -z $files ]] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "    [[ -z $choices ]] || COMPREPLY=($(compgen -W \"$choices\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  if [[ -n $paths && $word != -* ]]; then\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  [[ $word == -* ]] && words=$flags\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "shopt -s extglob\n"
         "complete -o bashdefault -F _reverb reverb\n";
}

// --- zsh ---

// Returns what completes a value: ":PORT: ".
std::string ZshValue(const WordSpec& word) {
  std::string action = " ";
  if (word.is_file) action = "_files";
  if (!word.choices.empty()) action = "(" + Join(word.choices, " ") + ")";
  return ":" + Escape(word.value, "\\:") + ":" + action;
}

// Returns the specifications of _arguments for the options and arguments of a command.
std::vector<std::string> ZshSpecs(const CommandSpec& command) {
  std::vector<std::string> specs;
  for (const WordSpec& option : command.options) {
    for (const std::string& flag : option.flags) {
      const bool is_long_with_value = !option.value.empty() && flag.starts_with("--");
      specs.push_back(InQuotes((option.may_repeat ? "*" : "") + flag + (is_long_with_value ? "=" : "") + "[" +
                               Escape(option.description, "\\[]:") + "]" +
                               (option.value.empty() ? "" : ZshValue(option))));
    }
  }
  for (size_t i = 0; i < command.arguments.size(); ++i) {
    const WordSpec& argument = command.arguments[i];
    specs.push_back(InQuotes((argument.may_repeat ? "*" : std::to_string(i + 1)) + ZshValue(argument)));
  }
  return specs;
}

// Returns the statements that complete a command; those below it too.
std::string ZshBody(const CommandSpec& command, const std::string& indent) {
  const std::string separator = " \\\n" + indent + "  ";
  const std::vector<std::string> specs = ZshSpecs(command);
  if (command.below.empty()) return indent + "_arguments -S" + separator + Join(specs, separator) + "\n";
  std::string text = indent + "_arguments -C" + separator + Join(specs, separator) + separator +
                     "'1:command:->command'" + separator + "'*::argument:->argument'\n" + indent +
                     "case $state in\n" + indent + "  command)\n" + indent + "    commands=(\n";
  for (const CommandSpec& sub : command.below) {
    text +=
        indent + "      " + InQuotes(Escape(sub.name, "\\:") + ":" + Escape(sub.description, "\\:")) + "\n";
  }
  text += indent + "    )\n" + indent + "    _describe command commands\n" + indent + "    ;;\n" + indent +
          "  argument)\n" + indent + "    case $words[1] in\n";
  for (const CommandSpec& sub : command.below) {
    text +=
        indent + "      " + sub.name + ")\n" + ZshBody(sub, indent + "        ") + indent + "        ;;\n";
  }
  return text + indent + "    esac\n" + indent + "    ;;\n" + indent + "esac\n";
}

std::string ZshCompletion(const CommandSpec& program) {
  return "#compdef reverb\n"
         "# Completion of `reverb` for zsh. Generated from the program's help.\n"
         "# To try it, after compinit:  source <(reverb completion zsh)\n"
         "_reverb() {\n"
         "  local curcontext=$curcontext state line\n"
         "  local -a commands\n"
         "  typeset -A opt_args\n" +
         ZshBody(program, "  ") +
         "}\n"
         "if [[ ${funcstack[1]} == _reverb ]]; then\n"
         "  _reverb \"$@\"\n"
         "else\n"
         "  compdef _reverb reverb\n"
         "fi\n";
}

// --- fish ---

// Adds lines for a command whose names are `path`.
void AddFish(const CommandSpec& command, const std::string& path, std::string* text) {
  const std::string at = "complete -c reverb -n " + InQuotes("__reverb_at" + path);
  for (const WordSpec& option : command.options) {
    *text += at;
    for (const std::string& flag : option.flags) {
      *text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
    }
    if (!option.value.empty()) *text += option.is_file ? " -r -F" : " -x";
    if (!option.choices.empty()) *text += " -a " + InQuotes(Join(option.choices, " "));
    *text += " -d " + InQuotes(Escape(option.description, "\\")) + "\n";
  }
  for (const WordSpec& argument : command.arguments) {
    if (argument.is_file) *text += at + " -F\n";
    if (!argument.choices.empty()) *text += at + " -a " + InQuotes(Join(argument.choices, " ")) + "\n";
  }
  for (const CommandSpec& sub : command.below) {
    *text += "complete -c reverb -n " + InQuotes("__reverb_is" + path) + " -a " + sub.name + " -d " +
             InQuotes(Escape(sub.description, "\\")) + "\n";
  }
  for (const CommandSpec& sub : command.below) AddFish(sub, path + " " + sub.name, text);
}

std::string FishCompletion(const CommandSpec& program) {
  std::string text =
      "# Completion of `reverb` for fish. Generated from the program's help.\n"
      "# To try it:  reverb completion fish | source\n"
      "# Returns whether the command line begins with these commands.\n"
      "function __reverb_at\n"
      "  set -l words (commandline -opc)\n"
      "  set -e words[1]\n"
      "  test (count $words) -ge (count $argv); or return 1\n"
      "  for i in (seq (count $argv))\n"
      "    test \"$words[$i]\" = \"$argv[$i]\"; or return 1\n"
      "  end\n"
      "end\n"
      "# Returns whether it has these commands and nothing else.\n"
      "function __reverb_is\n"
      "  test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __reverb_at $argv\n"
      "end\n"
      "complete -c reverb -f\n";
  AddFish(program, "", &text);
  return text;
}

}  // namespace

Command AddCompletion(CLI::App* program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* const app =
      program->add_subcommand("completion", "Print the script that completes words in a shell");
  app->add_option("SHELL", *shell, "The shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("");
  app->footer(
      "Examples:\n"
      "  source <(reverb completion bash)\n"
      "  source <(reverb completion zsh)     # after compinit\n"
      "  reverb completion fish | source");
  return {app, [program, shell] {
            const CommandSpec spec = SpecOf(*program);
            const std::string script = *shell == "bash"  ? BashCompletion(spec)
                                       : *shell == "zsh" ? ZshCompletion(spec)
                                                         : FishCompletion(spec);
            std::fputs(script.c_str(), stdout);
            return int{kOk};
          }};
}

}  // namespace reverb::program
