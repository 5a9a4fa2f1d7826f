// Runs histories, each from its seed.
//
//   sim --seed N                               one of them, told line by line
//   sim --histories N [--from SEED] [--jobs N] many, from a seed on; ends with 1 where a promise was broken

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "sim/history.hpp"

namespace {

using namespace syncguard::sim;

struct wishes {
  bool one = false;
  std::uint64_t seed = 0;
  std::uint64_t histories = 0;
  std::uint64_t from = 1;
  unsigned jobs = 0;  // 0: as many as there are processors
};

// What a process of histories tells the one that started it, in memory that they share.
struct report {
  std::atomic<std::uint64_t> histories;
  std::atomic<bool> stop;
  std::uint64_t broken_seed;
  char violation[400];
  tally sums;
};

int usage() {
  std::fprintf(stderr, "usage: sim --seed N | sim --histories N [--from SEED] [--jobs N]\n");
  return 2;
}

bool parse(int count, char** words, wishes& out) {
  for (int index = 1; index + 1 < count; index += 2) {
    const std::string_view name = words[index];
    char* end = nullptr;
    const std::uint64_t number = std::strtoull(words[index + 1], &end, 10);
    if (*words[index + 1] == '\0' || *end != '\0') return false;
    if (name == "--seed") {
      out.one = true;
      out.seed = number;
    } else if (name == "--histories") {
      out.histories = number;
    } else if (name == "--from") {
      out.from = number;
    } else if (name == "--jobs") {
      out.jobs = static_cast<unsigned>(number);
    } else {
      return false;
    }
  }
  return count > 1 && count % 2 == 1 && (out.one || out.histories > 0);
}

int run_one(std::uint64_t seed) {
  history told{seed, true};
  told.run();
  return told.violation().empty() ? 0 : 1;
}

// Every `jobs`-th of the histories, until one of them breaks a promise.
void run_share(const wishes& what, unsigned first, unsigned jobs, report& out) {
  tally sums;
  for (std::uint64_t index = first; index < what.histories && !out.stop; index += jobs) {
    history each{what.from + index, false};
    each.run();
    sums.add(each.sums());
    ++out.histories;
    if (each.violation().empty()) continue;
    out.broken_seed = what.from + index;
    std::snprintf(out.violation, sizeof out.violation, "%s", each.violation().c_str());
    break;
  }
  out.sums = sums;
}

report* share_memory(unsigned jobs) {
  void* got = mmap(nullptr, jobs * sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<report*>(got);
}

void show_progress(const wishes& what, const report* reports, unsigned jobs, double seconds) {
  std::uint64_t done = 0;
  for (unsigned job = 0; job < jobs; ++job) done += reports[job].histories;
  std::fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " histories, %.0f a second%s", isatty(2) == 1 ? "\r" : "", done,
               what.histories, static_cast<double>(done) / std::max(seconds, 0.001), isatty(2) == 1 ? "  " : "\n");
}

// Returns whether all processes ended as they should.
bool await_all(const wishes& what, const std::vector<pid_t>& children, report* reports) {
  const auto began = std::chrono::steady_clock::now();
  const auto jobs = static_cast<unsigned>(children.size());
  std::size_t left = children.size();
  bool well = true;
  double shown = 0;
  while (left > 0) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0) return false;
    if (ended > 0) {
      --left;
      well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      bool stop = !well;
      for (unsigned job = 0; job < jobs; ++job) stop = stop || reports[job].violation[0] != '\0';
      for (unsigned job = 0; job < jobs && stop; ++job) reports[job].stop = true;
      continue;
    }
    usleep(20'000);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (seconds < shown + (isatty(2) == 1 ? 1 : 10)) continue;
    shown = seconds;
    show_progress(what, reports, jobs, seconds);
  }
  return well;
}

void show(const tally& sums, double seconds) {
  std::printf("%" PRIu64 " histories with %" PRIu64 " faults in %.1f s, %.0f histories a second\n", sums.histories,
              sums.all_faults(), seconds, static_cast<double>(sums.histories) / std::max(seconds, 0.001));
  std::printf("%" PRIu64 " calls, %" PRIu64 " locks of which %" PRIu64 " were lost, %" PRIu64
              " grants by hand, %" PRIu64 " looks at a lock that was certain\nfaults:",
              sums.calls, sums.locks, sums.losses, sums.grants, sums.checks);
  for (std::size_t index = 0; index < fault_count; ++index)
    std::printf(" %s %" PRIu64, name_of(static_cast<fault>(index)).data(), sums.faults.at(index));
  std::printf("\n");
}

int run_many(const wishes& what) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned jobs = what.jobs > 0 ? what.jobs : static_cast<unsigned>(std::max(1L, processors));
  report* reports = share_memory(jobs);
  if (reports == nullptr) return 2;
  const auto began = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (unsigned job = 0; job < jobs; ++job) {
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
      run_share(what, job, jobs, reports[job]);
      _exit(0);
    }
    children.push_back(child);
  }
  const bool well = await_all(what, children, reports);
  tally sums;
  for (unsigned job = 0; job < jobs; ++job) sums.add(reports[job].sums);
  show(sums, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  int outcome = well ? 0 : 1;
  if (!well) std::printf("a process of histories crashed\n");
  for (unsigned job = 0; job < jobs; ++job) {
    if (reports[job].violation[0] == '\0') continue;
    outcome = 1;
    std::printf("VIOLATION in seed %" PRIu64 ": %s\n  replay it: ./dev sim --seed %" PRIu64 "\n",
                reports[job].broken_seed, reports[job].violation, reports[job].broken_seed);
  }
  if (outcome == 0) std::printf("no promise was broken\n");
  return outcome;
}

}  // namespace

int main(int count, char** words) {
  wishes what;
  if (!parse(count, words, what)) return usage();
  return what.one ? run_one(what.seed) : run_many(what);
}
