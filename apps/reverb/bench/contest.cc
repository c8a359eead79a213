#include "bench/contest.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "bench/limit_grpc.h"
#include "bench/payload.h"
#include "reverb/server.h"

namespace reverb::bench {
namespace {

constexpr char kServe[] = "serve";
constexpr char kOpen[] = "open";
constexpr char kRun[] = "run";

// A round is valid if other programs used less than this share of the machine's time.
constexpr double kMaxSteal = 0.04;
constexpr double kMaxOthers = 0.08;
// With fewer undisturbed rounds than this, all rounds are used.
constexpr size_t kFewestRounds = 3;

// Pause between slices: operations complete, and samplers prefetch again.
constexpr std::chrono::milliseconds kRest{150};

bool IsLimit(Kind kind) { return kind >= Kind::kLimitStreams; }

constexpr char kLoopback[] = "127.0.0.1";

Contest::Progress& TheProgress() {
  static Contest::Progress* const progress = new Contest::Progress();
  return *progress;
}

}  // namespace

void Contest::SetProgress(Progress progress) { TheProgress() = std::move(progress); }

Result<std::string> Contest::StartServer(const Job& job) {
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Process::Start());
  REVERB_ASSIGN_OR_RETURN(const Message reply, process->Call(job.ToMessage(kServe)));
  servers_.push_back(std::move(process));
  return std::string(kLoopback) + ":" + reply.Get("port");
}

Result<size_t> Contest::AddSide(const std::vector<Job>& jobs) {
  Side side;
  for (const Job& job : jobs) {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Process::Start());
    REVERB_RETURN_IF_ERROR(process->Call(job.ToMessage(kOpen)).status());
    side.processes.push_back(std::move(process));
    if (const size_t colon = job.address.rfind(':'); colon != std::string::npos) {
      side.port = std::atoi(job.address.c_str() + colon + 1);
    }
  }
  sides_.push_back(std::move(side));
  return sides_.size() - 1;
}

std::vector<pid_t> Contest::Pids() const {
  std::vector<pid_t> pids;
  for (const auto& server : servers_) pids.push_back(server->pid());
  for (const Side& side : sides_) {
    for (const auto& process : side.processes) pids.push_back(process->pid());
  }
  return pids;
}

Result<Slice> Contest::RunSlice(const Side& side, double seconds) {
  const Message run = Message(kRun).Set("seconds", seconds);
  for (const auto& process : side.processes) REVERB_RETURN_IF_ERROR(process->Send(run));
  Slice sum;
  for (const auto& process : side.processes) {
    REVERB_ASSIGN_OR_RETURN(const Message reply, process->Receive());
    sum.Add(Slice::FromMessage(reply));
  }
  return sum;
}

Result<Outcomes> Contest::Run(double seconds, int rounds) {
  struct Round {
    std::vector<Slice> slices;
    Disturbance disturbance;
    bool is_good = false;
  };
  const double slice_seconds = seconds / rounds;
  Outcomes outcomes;
  outcomes.sides.resize(sides_.size());
  for (size_t i = 0; i < sides_.size(); ++i) {
    REVERB_RETURN_IF_ERROR(RunSlice(sides_[i], std::min(0.3, slice_seconds)).status());
    // By now every client of the side has connected.
    std::vector<pid_t> pids;
    for (const auto& process : sides_[i].processes) pids.push_back(process->pid());
    if (sides_[i].port != 0) outcomes.sides[i].connections = CountConnections(sides_[i].port, pids);
  }

  std::vector<Round> measured;
  int good = 0;
  while (good < rounds && static_cast<int>(measured.size()) < 2 * rounds) {
    Round round;
    for (const Side& side : sides_) {
      if (TheProgress()) TheProgress()(good, rounds, round.slices.size(), sides_.size());
      std::this_thread::sleep_for(kRest);
      const CpuMeter meter(Pids());
      REVERB_ASSIGN_OR_RETURN(Slice slice, RunSlice(side, slice_seconds));
      const Disturbance disturbance = meter.Read();
      round.disturbance.steal = std::max(round.disturbance.steal, disturbance.steal);
      round.disturbance.others = std::max(round.disturbance.others, disturbance.others);
      round.slices.push_back(std::move(slice));
    }
    round.is_good = round.disturbance.steal <= kMaxSteal && round.disturbance.others <= kMaxOthers;
    if (round.is_good) ++good;
    measured.push_back(std::move(round));
  }

  outcomes.noisy = static_cast<size_t>(good) < std::min(kFewestRounds, static_cast<size_t>(rounds));
  for (Round& round : measured) {
    if (!round.is_good && !outcomes.noisy) {
      ++outcomes.rejected;
      continue;
    }
    ++outcomes.rounds;
    outcomes.worst.steal = std::max(outcomes.worst.steal, round.disturbance.steal);
    outcomes.worst.others = std::max(outcomes.worst.others, round.disturbance.others);
    for (size_t i = 0; i < sides_.size(); ++i) {
      outcomes.sides[i].slices.push_back(std::move(round.slices[i]));
    }
  }
  return outcomes;
}

// --- Inside a process ---

namespace {

class Worker {
 public:
  Result<Message> Handle(const Message& command) {
    if (command.verb() == kServe) return Serve(Job::FromMessage(command));
    if (command.verb() == kOpen) return Open(Job::FromMessage(command));
    if (command.verb() == kRun) {
      REVERB_ASSIGN_OR_RETURN(const Slice slice, RunLoops(loops_, command.GetNumber("seconds")));
      return slice.ToMessage();
    }
    return Status::InvalidArgument("no command \"" + command.verb() + "\"");
  }

 private:
  Result<Message> Serve(const Job& job) {
    int port = 0;
    if (IsLimit(job.kind)) {
      REVERB_ASSIGN_OR_RETURN(limit_server_, GrpcLimitServer::Start(std::max(1, job.writers)));
      port = limit_server_->port();
    } else {
      REVERB_ASSIGN_OR_RETURN(std::vector<TableOptions> tables, TablesFor(job));
      REVERB_ASSIGN_OR_RETURN(server_, Server::Start({.tables = std::move(tables), .host = kLoopback}));
      port = server_->port();
    }
    return Message("serving").Set("port", int64_t{port});
  }

  Result<Message> Open(const Job& job) {
    Pool();  // created before the first slice
    if (job.address.empty() && !IsLimit(job.kind)) {
      REVERB_ASSIGN_OR_RETURN(std::vector<TableOptions> tables, TablesFor(job));
      REVERB_ASSIGN_OR_RETURN(server_, Server::Start({.tables = std::move(tables), .port = std::nullopt}));
    }
    const ClientOptions options{.write_window_bytes = job.write_window_bytes, .local = job.local};
    REVERB_ASSIGN_OR_RETURN(loops_, MakeLoops(job, [&]() -> Result<Client> {
                              if (server_) return server_->in_process_client(options);
                              return Client::Connect(job.address, options);
                            }));
    return Message("open");
  }

  std::optional<Server> server_;
  std::unique_ptr<GrpcLimitServer> limit_server_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

}  // namespace

void ServeContest() {
  Worker worker;
  ServeCommands([&worker](const Message& command) { return worker.Handle(command); });
  // Exits immediately: some threads may wait for processes that have ended.
  std::_Exit(0);
}

}  // namespace reverb::bench
