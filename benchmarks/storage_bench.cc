// storage_bench.cc — compares a server with a disk tier with the disk by itself.
//
// First inserts items of incompressible data, several times what may stay in memory, and compares with large sequential
// writes of the same bytes with O_DIRECT (like dd oflag=direct bs=8M). Then samples uniform batches, and compares with
// random reads of the items' size at a depth of the batch's size, by fio if it is installed. Everything is in one
// process: the limit of a server is its transport otherwise. Needs twice the bytes on the disk; removes its files.
//
//   storage_bench --folder=PATH [--gb=20] [--memory-gb=2] [--item=40000] [--batch=256] [--writers=2] [--streams=4] [--seconds=10]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reverb/sampler.h"
#include "reverb/server.h"

namespace {

struct Settings {
  std::string folder;
  double gb = 20;
  double memory_gb = 2;
  int64_t item = 40'000;
  int64_t batch = 256;
  int writers = 2;
  int streams = 4;
  double seconds = 10;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Require(const reverb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "storage_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Random bytes of which items are parts.
std::vector<uint8_t> MakePool() {
  std::vector<uint8_t> pool(size_t{256} << 20);
  std::mt19937_64 random(1);
  for (size_t i = 0; i < pool.size(); i += 8) {
    const uint64_t value = random();
    std::memcpy(pool.data() + i, &value, 8);
  }
  return pool;
}

// Returns GB/s of writing `gb` to a new file with O_DIRECT.
double WriteDirectly(const std::string& path, double gb, const std::vector<uint8_t>& pool) {
  constexpr size_t kWrite = size_t{8} << 20;
  void* const buffer = ::operator new (kWrite, std::align_val_t{4096});
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0666);
  if (fd < 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
  const auto bytes = static_cast<uint64_t>(gb * 1e9) / kWrite * kWrite;
  (void)!::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  std::memcpy(buffer, pool.data(), kWrite);
  const double begin = Now();
  for (uint64_t at = 0; at < bytes; at += kWrite) {
    if (::pwrite(fd, buffer, kWrite, static_cast<off_t>(at)) != static_cast<ssize_t>(kWrite)) {
      std::perror("pwrite");
      std::exit(1);
    }
  }
  const double seconds = Now() - begin;
  ::close(fd);
  ::operator delete (buffer, std::align_val_t{4096});
  return static_cast<double>(bytes) / 1e9 / seconds;
}

// Returns GB/s of random reads by fio; 0 if it is not installed.
double ReadRandomly(const std::string& path, const Settings& settings) {
  const int64_t block = (settings.item + 4095) / 4096 * 4096;
  const std::string command =
      "fio --name=r --filename=" + path + " --rw=randread --bs=" + std::to_string(block) +
      " --direct=1 --ioengine=io_uring --iodepth=" + std::to_string(settings.batch) +
      " --time_based --runtime=" + std::to_string(static_cast<int>(settings.seconds)) +
      " --output-format=terse 2>/dev/null";
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return 0;
  char line[8192] = {};
  const bool has_line = std::fgets(line, sizeof(line), pipe) != nullptr;
  ::pclose(pipe);
  if (!has_line) return 0;
  const char* field = line;
  for (int i = 0; i < 6 && field != nullptr; ++i) {
    field = std::strchr(field, ';');
    if (field != nullptr) ++field;
  }
  return field == nullptr ? 0 : std::atof(field) * 1024 / 1e9;  // kB/s
}

void InsertAll(const reverb::Client& client, const Settings& settings, const std::vector<uint8_t>& pool) {
  const auto total = static_cast<int64_t>(settings.gb * 1e9 / static_cast<double>(settings.item));
  std::vector<std::thread> threads;
  for (int w = 0; w < settings.writers; ++w) {
    threads.emplace_back([&, w] {
      auto writer =
          client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}}).value();
      const std::array<int64_t, 1> dims = {settings.item};
      const size_t span = pool.size() - static_cast<size_t>(settings.item);
      for (int64_t i = w; i < total; i += settings.writers) {
        const size_t at = static_cast<size_t>(i) * 4099 % span;
        const reverb::ColumnValue value{0, {reverb::DType::kUint8, dims, pool.data() + at}};
        Require(writer.Append({&value, 1}));
        const reverb::CellRange newest = reverb::CellRange::One(0, writer.position() - 1);
        const reverb::ItemColumn column{{&newest, 1}};
        Require(writer.CreateItem("replay", 1.0, {&column, 1}));
      }
      Require(writer.Flush(0, {}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Run(const Settings& settings) {
  const std::vector<uint8_t> pool = MakePool();
  const std::string tier = settings.folder + "/storage_bench";
  const std::string plain = settings.folder + "/storage_bench.direct";
  reverb::TableOptions table{.name = "replay",
                             .sampler = reverb::SelectorOptions::Uniform(1),
                             .remover = reverb::SelectorOptions::Fifo(),
                             .max_size = 1 << 30};
  auto server = reverb::Server::Start(
      {.tables = {table},
       .storage = reverb::StorageOptions{.path = tier,
                                         .memory_limit = static_cast<int64_t>(settings.memory_gb * 1e9),
                                         .disk_limit = static_cast<int64_t>(settings.gb * 1.5e9)},
       .port = {}});
  Require(server.status());
  const reverb::Client client = server->in_process_client();
  const double part = std::min(settings.gb, 4.0);
  const double first = WriteDirectly(plain, part, pool);
  const double begin = Now();
  InsertAll(client, settings, pool);
  const double inserts = settings.gb / (Now() - begin);
  const double second = WriteDirectly(plain, part, pool);
  const double direct = (first + second) / 2;
  const reverb::ServerInfo info = client.Info().value();
  std::printf(
      "inserts  %5.2f GB/s; O_DIRECT writes %5.2f and %5.2f GB/s; ratio %.2f; %.1f GB on disk, %.1f in "
      "memory\n",
      inserts, first, second, inserts / direct, static_cast<double>(info.storage_disk_bytes) / 1e9,
      static_cast<double>(info.storage_memory_bytes) / 1e9);

  const double reads_before = ReadRandomly(plain, settings);
  auto sampler = client
                     .NewSampler({.table = "replay",
                                  .max_in_flight_samples_per_worker = 2 * settings.batch,
                                  .num_workers = settings.streams})
                     .value();
  reverb::Batch batch;
  const auto sample = [&](double seconds) {
    const double start = Now();
    int64_t samples = 0;
    while (Now() < start + seconds) {
      Require(sampler.NextBatch(settings.batch, &batch));
      samples += settings.batch;
    }
    return static_cast<double>(samples * settings.item) / 1e9 / (Now() - start);
  };
  sample(1);  // fills what is in flight
  const int64_t read_before = client.Info().value().storage_read_bytes;
  const double samples = sample(settings.seconds);
  const double from_disk =
      static_cast<double>(client.Info().value().storage_read_bytes - read_before) / 1e9 / settings.seconds;
  const double reads_after = ReadRandomly(plain, settings);
  const double reads = (reads_before + reads_after) / 2;
  std::printf("samples  %5.2f GB/s, %5.2f of them from disk; fio %5.2f and %5.2f GB/s; ratio %.2f\n", samples,
              from_disk, reads_before, reads_after, reads > 0 ? samples / reads : 0.0);
  sampler.Close();
  server->Stop();
  std::filesystem::remove(plain);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    const std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
    if (name == "--folder") {
      settings.folder = value;
    } else if (name == "--gb") {
      settings.gb = std::atof(value.c_str());
    } else if (name == "--memory-gb") {
      settings.memory_gb = std::atof(value.c_str());
    } else if (name == "--item") {
      settings.item = std::atoll(value.c_str());
    } else if (name == "--batch") {
      settings.batch = std::atoll(value.c_str());
    } else if (name == "--writers") {
      settings.writers = std::atoi(value.c_str());
    } else if (name == "--streams") {
      settings.streams = std::atoi(value.c_str());
    } else if (name == "--seconds") {
      settings.seconds = std::atof(value.c_str());
    } else {
      std::fprintf(stderr, "storage_bench: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  if (settings.folder.empty()) {
    std::fprintf(stderr, "storage_bench: give --folder=PATH, on the disk to measure\n");
    return 2;
  }
  Run(settings);
  return 0;
}
