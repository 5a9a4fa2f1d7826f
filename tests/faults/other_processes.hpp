#pragma once

// Further processes of a test: this program again, with arguments, so that each begins afresh; and a piece of memory
// that all of them share, through which they report without Redis.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace syncguard::testing {

// What a shared file holds, zeros at first; null where it cannot be had. It stays mapped until the process ends.
template <class T>
T* map_shared(const std::string& path, bool make) {
  const int file = open(path.c_str(), make ? O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || (make && ftruncate(file, sizeof(T)) != 0)) return nullptr;
  void* mapped = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped != MAP_FAILED ? static_cast<T*>(mapped) : nullptr;
}

// Ended by the kernel when the test ends, and by this object when that ends.
class other_processes {
 public:
  ~other_processes() { end_all(); }

  bool start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "again");
    std::vector<char*> texts;
    for (std::string& each : arguments) texts.push_back(each.data());
    texts.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t made = fork();
    if (made == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      execv("/proc/self/exe", texts.data());
      _exit(127);
    }
    if (made > 0) pids_.push_back(made);
    return made > 0;
  }

  const std::vector<pid_t>& pids() const noexcept { return pids_; }

  // SIGSTOP, and until it has really stopped.
  static void pause(pid_t which) {
    kill(which, SIGSTOP);
    int status = 0;
    waitpid(which, &status, WUNTRACED);
  }
  static void resume(pid_t which) { kill(which, SIGCONT); }

  void end_all() {
    for (const pid_t each : pids_) {
      kill(each, SIGKILL);
      waitpid(each, nullptr, 0);
    }
    pids_.clear();
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace syncguard::testing
