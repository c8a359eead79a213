// Kills a server at random moments of its checkpoints, repeatedly over the same files. Each restart must find
// the last checkpoint that was reported as saved, or the one that was in progress, complete.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "reverb/checkpoint.h"
#include "testing/effort.h"
#include "testing/seed.h"

namespace reverb {
namespace {

constexpr int64_t kMaxSize = 2'000;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "reverb-kill-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The output of a server before it was killed.
struct Life {
  int64_t loaded = -1;
  int64_t saved = -1;
  int64_t saving = -1;
  std::string trouble;
};

// Runs a server over `path`; kills it `patience` after it started to save.
Life RunAndKill(const std::string& path, std::chrono::microseconds patience) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return {.trouble = "no pipe"};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out[1], STDOUT_FILENO);
    ::execl(REVERB_KILL_SERVER, "kill_server", path.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  Life life;
  std::string text;
  std::optional<std::chrono::steady_clock::time_point> end;
  bool is_killed = false;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_killed && ((end && now >= *end) || now >= give_up)) {
      ::kill(pid, SIGKILL);
      is_killed = true;
    }
    pollfd fd{.fd = out[0], .events = POLLIN, .revents = 0};
    ::poll(&fd, 1, is_killed ? 1'000 : 1);
    if (fd.revents == 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(out[0], buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
    for (size_t line_end; (line_end = text.find('\n')) != std::string::npos; text.erase(0, line_end + 1)) {
      const size_t space = text.find(' ');
      const int64_t number = std::atoll(text.c_str() + space);
      const std::string word = text.substr(0, space);
      (word == "loaded" ? life.loaded : word == "saving" ? life.saving : life.saved) = number;
      if (word == "saving" && !end) end = std::chrono::steady_clock::now() + patience;
    }
  }
  ::close(out[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (!WIFSIGNALED(status)) life.trouble = "it ended by itself with status " + std::to_string(status);
  if (!end) life.trouble += " it never saved";
  return life;
}

// Returns the number of inserts in the latest checkpoint after checking its items; 0 without a checkpoint.
void CheckLatest(const std::string& path, int64_t* inserts) {
  *inserts = 0;
  const Result<CheckpointReader> reader = CheckpointReader::Open(path);
  if (!reader.ok()) {
    ASSERT_EQ(reader.status().code(), StatusCode::kNotFound) << reader.status().ToString();
    return;
  }
  const TableInfo& info = reader->info().tables.at(0);
  *inserts = info.counters.inserts;
  ASSERT_EQ(info.current_size, std::min(kMaxSize, *inserts));
  std::map<int64_t, int> seen;  // by position in the order of inserts
  CheckpointItems items = reader->Items("t").value();
  while (true) {
    const auto item = items.Next();
    ASSERT_TRUE(item.ok()) << item.status().ToString();
    if (!item->has_value()) break;
    const Tensor tensor = (*item)->column(0).value();
    const auto* row = reinterpret_cast<const int64_t*>(tensor.data());
    ASSERT_EQ(tensor.num_elements(), 1 + static_cast<size_t>(row[0] % 50));
    for (size_t i = 0; i < tensor.num_elements(); ++i) ASSERT_EQ(row[i], row[0]);
    ++seen[row[0]];
  }
  ASSERT_EQ(static_cast<int64_t>(seen.size()), info.current_size);
  ASSERT_EQ(seen.rbegin()->first, *inserts);
  ASSERT_EQ(seen.begin()->first, *inserts - info.current_size + 1);
}

TEST(KillTest, SavedCheckpointsSurviveAKillAtAnyMoment) {
  const Folder folder;
  const std::string root = folder.path() + "/run";
  std::mt19937_64 random(test::Seed());
  int64_t last = 0;  // the number of inserts in the files
  const int64_t kills = test::Effort(20, 4);
  for (int64_t kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    const Life life = RunAndKill(root, std::chrono::microseconds(random() % 60'000));
    ASSERT_EQ(life.trouble, "");
    ASSERT_EQ(life.loaded, last);
    int64_t inserts = 0;
    CheckLatest(root, &inserts);
    if (testing::Test::HasFatalFailure()) return;
    const int64_t saved = life.saved >= 0 ? life.saved : last;
    ASSERT_TRUE(inserts == saved || inserts == life.saving)
        << inserts << " items, but " << saved << " were saved and " << life.saving << " were being saved";
    last = inserts;
  }
}

}  // namespace
}  // namespace reverb
