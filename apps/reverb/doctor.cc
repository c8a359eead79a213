// `reverb doctor`: checks a server and its host, and says what to change.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "doctor_checks.h"
#include "exit_codes.h"
#include "json.h"
#include "remote.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

struct DoctorOptions {
  Remote remote;
  std::string checkpoint;
  bool json = false;
  bool skip_disk = false;
};

struct Diagnosis {
  std::string address;
  Findings findings;
  bool is_reachable = false;

  bool HasFailed() const {
    return std::ranges::any_of(findings, [](const Finding& one) { return one.verdict == Verdict::kFailure; });
  }
};

Diagnosis Examine(const DoctorOptions& options, const std::string& address) {
  Diagnosis diagnosis{.address = address};
  const auto add = [&](Findings more) { std::ranges::move(more, std::back_inserter(diagnosis.findings)); };
  Remote remote = options.remote;
  remote.address = address;
  add(CheckReachability(address, std::chrono::milliseconds(
                                     static_cast<int64_t>(std::min(remote.timeout_seconds, 60.0) * 1000))));
  if (diagnosis.HasFailed()) return diagnosis;
  const Result<Client> client = remote.Connect();
  ServerInfo info;
  const Result<Findings> server =
      client.ok() ? CheckServer(*client, remote, &info) : Result<Findings>(client.status());
  if (!server.ok()) {
    add({{.check = "answer",
          .verdict = Verdict::kFailure,
          .text = "no answer from a Reverb server at " + ShowName(address) + ": " +
                  ShowName(server.status().message()),
          .advice =
              "is it another program's port, a server of dm-reverb, or one that is overloaded? A longer "
              "--timeout may help"}});
    return diagnosis;
  }
  diagnosis.is_reachable = true;
  add(*server);
  add(CheckTransport(*client, remote, info));
  add(CheckEncryption(address));
  const std::optional<LocalProcess> process = FindLocalProcess(info);
  add(CheckLimits(process));
  add(CheckMemory(info, process));
  add(CheckHugePages(process));
  if (!options.skip_disk) {
    add(CheckDisk(!options.checkpoint.empty() ? options.checkpoint
                  : process                   ? process->checkpoint_root
                                              : "",
                  info));
  }
  add(CheckTables(info));
  return diagnosis;
}

std::string ToText(const Diagnosis& diagnosis, const Paint& paint) {
  std::string text = paint.Bold(ShowName(diagnosis.address)) + "\n";
  int64_t warnings = 0, failures = 0;
  for (const Finding& finding : diagnosis.findings) {
    std::string name = VerdictName(finding.verdict);
    name.resize(8, ' ');
    warnings += finding.verdict == Verdict::kWarning;
    failures += finding.verdict == Verdict::kFailure;
    std::string check = finding.check;
    check.resize(11, ' ');
    text += "  " +
            (finding.verdict == Verdict::kFailure   ? paint.Red(name)
             : finding.verdict == Verdict::kWarning ? paint.Yellow(name)
             : finding.verdict == Verdict::kOk      ? paint.Green(name)
                                                    : paint.Dim(name)) +
            " " + check + finding.text + "\n";
    if (!finding.advice.empty()) text += std::string(22, ' ') + "-> " + finding.advice + "\n";
  }
  return text + "  " + ShowCount(failures, "failure") + ", " + ShowCount(warnings, "warning") + "\n";
}

std::string ToJson(const Diagnosis& diagnosis) {
  JsonWriter json;
  json.BeginObject()
      .Field("address", diagnosis.address)
      .Field("reachable", diagnosis.is_reachable)
      .Field("good", !diagnosis.HasFailed());
  json.Key("findings").BeginArray();
  for (const Finding& finding : diagnosis.findings) {
    json.BeginObject()
        .Field("check", finding.check)
        .Field("verdict", VerdictName(finding.verdict))
        .Field("text", finding.text)
        .Field("advice", finding.advice)
        .End();
  }
  return json.End().End().text();
}

int Doctor(const DoctorOptions& options) {
  std::vector<std::string> addresses = {options.remote.address};
  if (IsSet(options.remote.address)) {
    const Result<Client> client = options.remote.Connect();
    if (!client.ok()) return options.remote.Fail(client.status());
    addresses.clear();
    for (const Client::ServerReport& report : client->InfoOfEach(options.remote.wait())) {
      addresses.push_back(report.address);
    }
  } else if (!options.remote.address.starts_with("unix:") &&
             options.remote.address.find(':') == std::string::npos) {
    std::fprintf(stderr, "reverb doctor: the address %s has no port; write it as %s:8000\n",
                 Quote(options.remote.address).c_str(), options.remote.address.c_str());
    return kBadUsage;
  }
  const Paint paint(HasColours(STDOUT_FILENO));
  int code = kOk;
  for (const std::string& address : addresses) {
    const Diagnosis diagnosis = Examine(options, address);
    std::fputs((options.json ? ToJson(diagnosis) + "\n" : ToText(diagnosis, paint)).c_str(), stdout);
    std::fflush(stdout);
    if (!diagnosis.is_reachable) code = kUnreachable;
    if (diagnosis.is_reachable && diagnosis.HasFailed() && code == kOk) code = kFailed;
  }
  return code;
}

}  // namespace

Command AddDoctor(CLI::App* program) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* const app = program->add_subcommand(
      "doctor", "Check a server, its limits, memory and disk, and say what to change");
  options->remote.AddTo(app);
  app->add_option("--checkpoint", options->checkpoint,
                  "The folder whose disk is measured (default: that of a server on this host)")
      ->type_name("PATH");
  app->add_flag("--no-disk", options->skip_disk, "Do not write the temporary file that measures the disk");
  app->add_flag("--json", options->json, "One line of JSON for each server");
  app->footer(
      "Examples:\n"
      "  reverb doctor localhost:8000\n"
      "  reverb doctor replay-host:8000 --json\n"
      "\n"
      "Limits, memory and disk are those of the server's process: run it on the server's host, as its user. "
      "The\n"
      "disk is measured with a file of 64 MiB, for at most three seconds, which has no name and disappears\n"
      "with the program. The exit code is 0 unless a check fails (1) or the server cannot be reached (3);\n"
      "warnings do not change it.");
  return {app, [options] { return Doctor(*options); }};
}

}  // namespace reverb::program
