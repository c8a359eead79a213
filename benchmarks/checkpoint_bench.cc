// checkpoint_bench.cc — writing and loading checkpoints beside writing and reading the same bytes as one
// file.
//
// Reference and engine take turns; the median of each and of their ratio is printed. What was loaded is
// checked. Give it a folder on the disk in question.
//
// Loading is held against a sequential read with checksums. That uses one buffer again and again, while a
// load must keep all that it reads: so the same read into memory that is new is printed beside it, as the
// bound that the machine sets. Both that and a load run in a process of their own, after another one has
// touched as much memory and given it back: or else a virtual machine whose host takes free memory away is
// measured.
//
//   checkpoint_bench [--folder=PATH] [--rounds=N] [--large=ITEMS] [--small=ITEMS]
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/random.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "tensor/checksum.h"
#include "tensor/chunk_header.h"
#include "tensor/column.h"

namespace reverb::bench {
namespace {

using internal::CheckpointWriter;
using internal::ChunkHeader;
using internal::ChunkRef;
using internal::ChunkStore;
using internal::ConcurrentTable;
using internal::Item;
using internal::LoadedServer;
using internal::PosixFileSystem;
using internal::Random;
using internal::Snapshot;
using internal::Trajectory;

std::string g_folder;
int g_rounds = 3;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this process, all threads.
double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Check(bool ok, const std::string& what) {
  if (ok) return;
  std::fprintf(stderr, "checkpoint_bench: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T Value(Result<T> result) {
  Check(result.ok(), result.status().ToString());
  return *std::move(result);
}

struct Tables {
  std::shared_ptr<ChunkStore> store = std::make_shared<ChunkStore>(ChunkStore::Options());
  std::vector<std::shared_ptr<ConcurrentTable>> tables;
  size_t item_bytes = 0;
  uint64_t next_key = 1;
  Random random{7};

  Tables(size_t items, size_t bytes) : item_bytes(bytes) {
    tables = Value(internal::MakeTables(Options(items), {.store = store}));
  }
  static std::vector<TableOptions> Options(size_t items) {
    return {{.name = "t",
             .sampler = SelectorOptions::Uniform(1),
             .remover = SelectorOptions::Fifo(),
             .max_size = static_cast<int64_t>(items)}};
  }
  // Bytes that do not compress, one chunk to an item.
  void Insert() {
    ChunkHeader header{.episode_id = next_key, .rows = 1};
    uint8_t* payload = nullptr;
    header.columns.push_back(
        {.dtype = DType::kUint8,
         .row_shape = {static_cast<uint32_t>(item_bytes)},
         .rows_per_block = 1,
         .blocks = {{static_cast<uint32_t>(item_bytes), static_cast<uint32_t>(item_bytes), 0}}});
    bytes_.resize(item_bytes);
    for (size_t i = 0; i + 8 <= item_bytes; i += 8) {
      const uint64_t word = random.Next();
      std::memcpy(bytes_.data() + i, &word, 8);
    }
    header.columns[0].blocks[0].checksum = internal::Checksum(bytes_);
    ChunkRef chunk = Value(store->AddUninitialized(header, &payload));
    std::memcpy(payload, bytes_.data(), item_bytes);
    Item item{
        .key = next_key++, .priority = 1, .trajectory = Value(Trajectory::Single(std::move(chunk), 0, 1))};
    Check(tables[0]->Insert(std::move(item)).ok(), "an insert failed");
  }

 private:
  std::vector<uint8_t> bytes_;
};

// So that the files are read from the disk.
void DropCache(const std::string& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// What is in memory, written as one file, in large pieces, and synced.
double WritePlain(const std::string& path, const Tables& tables, uint64_t bytes) {
  std::filesystem::create_directories(path);
  std::vector<uint8_t> piece(size_t{1} << 20);
  Random random(3);
  for (size_t i = 0; i < piece.size(); i += 8) {
    const uint64_t word = random.Next();
    std::memcpy(piece.data() + i, &word, 8);
  }
  (void)tables;
  const double begin = Now();
  auto file =
      Value(PosixFileSystem()->NewWritableFile(path + "/plain", internal::FileSystem::OpenMode::kTruncate));
  for (uint64_t done = 0; done < bytes; done += piece.size()) {
    Check(file->Append(std::span<const uint8_t>(piece).first(std::min<uint64_t>(piece.size(), bytes - done)))
              .ok(),
          "a write failed");
  }
  Check(file->Sync().ok() && file->Close().ok(), "a sync failed");
  return Now() - begin;
}

// One file from front to back, with checksums.
enum class Keep : uint8_t { kNothing, kAll };
double ReadPlain(const std::string& path, Keep keep) {
  std::vector<std::unique_ptr<uint8_t[]>> pieces;
  constexpr size_t kPiece = size_t{1} << 20;
  const double begin = Now();
  const auto file = Value(PosixFileSystem()->NewRandomAccessFile(path + "/plain"));
  uint64_t sum = 0;
  for (uint64_t at = 0; at < file->size();) {
    if (pieces.empty() || keep == Keep::kAll) {
      pieces.push_back(std::make_unique_for_overwrite<uint8_t[]>(kPiece));
    }
    const size_t read = Value(file->Read(at, {pieces.back().get(), kPiece}));
    sum ^= internal::Checksum({pieces.back().get(), read});
    at += read;
  }
  Check(sum != 1, "the checksum is one");
  return Now() - begin;
}

double WriteOurs(CheckpointWriter& writer, const Tables& tables, CheckpointWriter::Stats* stats,
                 double* locks_held = nullptr) {
  const double begin = Now();
  const Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables.tables);
  if (locks_held != nullptr) *locks_held = std::chrono::duration<double>(snapshot.locks_held).count();
  *stats = Value(writer.Write(snapshot, {}, internal::RealClock()->WallNanos()));
  return Now() - begin;
}

// From /proc, in kilobytes.
int64_t StatusLine(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size() + 1);
  }
  return 0;
}

struct LoadResult {
  double seconds = 0;
  double cpu_seconds = 0;
  double peak_ratio = 0;  // most memory while loading, by memory afterwards
};

// What the process of its own does, so that its memory can be told.
int LoadAlone(const std::string& path, size_t items) {
  LoadResult result;
  const int64_t before = StatusLine("VmRSS:");
  auto store = std::make_shared<ChunkStore>(ChunkStore::Options());
  const double cpu = CpuSeconds();
  const double begin = Now();
  const LoadedServer loaded = Value(
      internal::LoadLatest(PosixFileSystem(), {.path = path}, Tables::Options(items), {.store = store}));
  result.seconds = Now() - begin;
  result.cpu_seconds = CpuSeconds() - cpu;
  Check(loaded.tables[0]->size() == static_cast<int64_t>(items), "items are missing");
  result.peak_ratio =
      static_cast<double>(StatusLine("VmHWM:") - before) / static_cast<double>(StatusLine("VmRSS:") - before);
  std::printf("%f %f %f\n", result.seconds, result.cpu_seconds, result.peak_ratio);
  std::fflush(stdout);
  ::_exit(0);  // giving all that memory back is not what is measured
}

// The plain read that keeps all, likewise.
int ReadAlone(const std::string& path) {
  std::printf("%f 0 0\n", ReadPlain(path, Keep::kAll));
  std::fflush(stdout);
  ::_exit(0);
}

// Memory that is touched and given back, for whoever comes next.
int TouchAlone(size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Check(memory != MAP_FAILED, "no memory to touch");
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(memory)[i] = 1;
  std::printf("0 0 0\n");
  std::fflush(stdout);
  ::_exit(0);
}

// This program again, for one of the three above.
LoadResult RunAlone(const std::string& what, const std::string& argument, size_t number) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  Check(length > 0, "who am I");
  const std::string command = "'" + std::string(self, static_cast<size_t>(length)) + "' " + what + "='" +
                              argument + "' " + std::to_string(number);
  FILE* const pipe = ::popen(command.c_str(), "r");
  LoadResult result;
  Check(pipe != nullptr &&
            std::fscanf(pipe, "%lf %lf %lf", &result.seconds, &result.cpu_seconds, &result.peak_ratio) == 3,
        "the process for " + what + " failed");
  ::pclose(pipe);
  return result;
}

void RunSize(size_t items, size_t item_bytes) {
  std::printf("\n%zu items of %zu bytes\n", items, item_bytes);
  Tables tables(items, item_bytes);
  for (size_t i = 0; i < items; ++i) tables.Insert();
  std::vector<double> write_cpu, write, plain_write, write_ratio, second, second_ratio, peak, locks;
  struct Loads {
    std::vector<double> ours, cpu, plain, ratio, fresh, fresh_ratio;
  };
  Loads loads[2];  // files in memory, files on the disk
  CheckpointWriter::Stats first_stats;
  CheckpointWriter::Stats second_stats;
  for (int round = 0; round < g_rounds; ++round) {
    const std::string ours = g_folder + "/ours";
    const std::string plain = g_folder + "/plain";
    std::filesystem::remove_all(ours);
    std::filesystem::remove_all(plain);
    CheckpointWriter writer(PosixFileSystem(), {.root = ours});
    double held = 0;
    const double cpu = CpuSeconds();
    write.push_back(WriteOurs(writer, tables, &first_stats, &held));
    write_cpu.push_back(CpuSeconds() - cpu);
    locks.push_back(held);
    const uint64_t bytes = first_stats.chunk_bytes + first_stats.page_bytes;
    plain_write.push_back(WritePlain(plain, tables, bytes));
    write_ratio.push_back(plain_write.back() / write.back());

    for (const bool is_cold : {false, true}) {
      Loads& to = loads[is_cold];
      const auto run = [&](const std::string& what, const std::string& path) {
        RunAlone("--touch", "", 3 * bytes / 2);
        if (is_cold) DropCache(path);
        return RunAlone(what, path, items);
      };
      const LoadResult loaded = run("--load", ours);
      to.ours.push_back(loaded.seconds);
      to.cpu.push_back(loaded.cpu_seconds);
      if (is_cold) DropCache(plain);
      to.plain.push_back(ReadPlain(plain, Keep::kNothing));
      to.ratio.push_back(to.plain.back() / to.ours.back());
      to.fresh.push_back(run("--read", plain).seconds);
      to.fresh_ratio.push_back(to.fresh.back() / to.ours.back());
      peak.push_back(loaded.peak_ratio);
    }

    for (size_t i = 0; i < items / 100; ++i) tables.Insert();
    second.push_back(WriteOurs(writer, tables, &second_stats, &held));
    locks.push_back(held);
    second_ratio.push_back(second.back() / write.back());
  }
  const double mega = static_cast<double>(first_stats.chunk_bytes + first_stats.page_bytes) / 1e6;
  const auto n = static_cast<double>(items);
  std::printf(
      "  write                      %8.3f s  %8.0f MB/s  %6.2f M items/s   plain file %8.3f s   ratio %.2f\n",
      Median(write), mega / Median(write), n / 1e6 / Median(write), Median(plain_write), Median(write_ratio));
  for (const bool is_cold : {false, true}) {
    const Loads& load = loads[is_cold];
    std::printf(
        "  load, files %s   %8.3f s  %8.0f MB/s  %6.2f M items/s   plain read %8.3f s   ratio %.2f   into "
        "new "
        "memory %.3f s   ratio %.2f   processor %.3f s\n",
        is_cold ? "on the disk " : "in memory   ", Median(load.ours), mega / Median(load.ours),
        n / 1e6 / Median(load.ours), Median(load.plain), Median(load.ratio), Median(load.fresh),
        Median(load.fresh_ratio), Median(load.cpu));
  }
  std::printf(
      "  second, 1 %% new            %8.3f s  %8.1f MB of %.1f, %llu of %llu pages   of the first %.3f\n",
      Median(second), static_cast<double>(second_stats.chunk_bytes + second_stats.page_bytes) / 1e6, mega,
      static_cast<unsigned long long>(second_stats.pages_written),
      static_cast<unsigned long long>(second_stats.pages_total), Median(second_ratio));
  std::printf("  processor time to write    %8.3f s\n", Median(write_cpu));
  std::printf("  locks held                 %8.2f ms at most\n", 1e3 * *std::ranges::max_element(locks));
  std::printf("  memory while loading       %8.2f of memory afterwards\n", Median(peak));
}

// How long an insert takes, with a pause between, while nothing else and while a checkpoint is written.
void RunLatency(size_t items, size_t item_bytes) {
  Tables tables(items, item_bytes);
  for (size_t i = 0; i < items; ++i) tables.Insert();
  std::filesystem::remove_all(g_folder + "/ours");
  CheckpointWriter writer(PosixFileSystem(), {.root = g_folder + "/ours"});
  std::vector<double> quiet;
  std::vector<double> busy;
  const auto insert = [&](std::vector<double>* times) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const double begin = Now();
    tables.Insert();
    times->push_back(Now() - begin);
  };
  double held = 0;
  for (int round = 0; round < g_rounds; ++round) {
    for (int i = 0; i < 3'000; ++i) insert(&quiet);
    std::atomic<bool> over{false};
    std::thread thread([&] {
      CheckpointWriter::Stats stats;
      double once = 0;
      WriteOurs(writer, tables, &stats, &once);
      held = std::max(held, once);
      over = true;
    });
    while (!over) insert(&busy);
    thread.join();
  }
  const auto at = [](std::vector<double> times, double part) {
    std::ranges::sort(times);
    return 1e6 * times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))];
  };
  std::printf(
      "  insert of %zu bytes at %zu items, µs: before p50 %.1f p99 %.1f; during a checkpoint p50 %.1f p99 "
      "%.1f "
      "(%zu inserts); p99 ratio %.2f; locks held %.2f ms\n",
      item_bytes, items, at(quiet, 0.5), at(quiet, 0.99), at(busy, 0.5), at(busy, 0.99), busy.size(),
      at(busy, 0.99) / at(quiet, 0.99), 1e3 * held);
}

int Main(int argc, char** argv) {
  size_t large = 20'000;
  size_t small = 2'000'000;
  g_folder =
      (std::filesystem::temp_directory_path() / ("reverb-checkpoint-bench-" + std::to_string(::getpid())))
          .string();
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as `reverb serve` does
  ::mallopt(M_TRIM_THRESHOLD, 32 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
  if (argc == 3) {  // RunAlone()
    const std::string_view what(argv[1]);
    const auto number = static_cast<size_t>(std::atoll(argv[2]));
    if (what.starts_with("--load=")) return LoadAlone(argv[1] + 7, number);
    if (what.starts_with("--read=")) return ReadAlone(argv[1] + 7);
    if (what.starts_with("--touch=")) return TouchAlone(number);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const std::string& name) {
      return argument.starts_with(name) ? argument.c_str() + name.size() : nullptr;
    };
    if (const char* text = value("--folder=")) {
      g_folder = std::string(text) + "/reverb-checkpoint-bench";
    } else if (const char* rounds = value("--rounds=")) {
      g_rounds = std::max(1, std::atoi(rounds));
    } else if (const char* items = value("--large=")) {
      large = static_cast<size_t>(std::atoll(items));
    } else if (const char* few = value("--small=")) {
      small = static_cast<size_t>(std::atoll(few));
    } else {
      std::fprintf(stderr,
                   "usage: checkpoint_bench [--folder=PATH] [--rounds=N] [--large=ITEMS] [--small=ITEMS]\n");
      return 2;
    }
  }
  std::filesystem::create_directories(g_folder);
  std::printf("checkpoints under %s, %d rounds\n", g_folder.c_str(), g_rounds);
  if (large > 0) {
    RunSize(large, 40'000);
    RunLatency(large, 40'000);
  }
  if (small > 0) {
    RunSize(small, 400);
    RunLatency(std::min<size_t>(small, 200'000), 400);
  }
  std::filesystem::remove_all(g_folder);
  return 0;
}

}  // namespace
}  // namespace reverb::bench

int main(int argc, char** argv) { return reverb::bench::Main(argc, argv); }
