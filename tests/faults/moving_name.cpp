#include "faults/moving_name.hpp"

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

namespace syncguard::testing {

namespace {

// libuv asks in a thread.
std::mutex mutex;
std::string present_address;
std::atomic<int> resolutions{0};

std::string address_now() {
  const std::scoped_lock held{mutex};
  return present_address;
}

template <class Function>
Function* system_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void move_name(std::string_view address) {
  const std::scoped_lock held{mutex};
  present_address = address;
}

int times_resolved() { return resolutions; }

}  // namespace syncguard::testing

extern "C" {

int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  using namespace syncguard::testing;
  static auto* const real = system_function<decltype(getaddrinfo)>("getaddrinfo");
  if (name == nullptr || name != moving_name) return real(name, service, hints, found);
  ++resolutions;
  const std::string address = address_now();
  return address.empty() ? EAI_NONAME : real(address.c_str(), service, hints, found);
}

struct evdns_base;
int evdns_base_load_hosts(evdns_base* base, const char* file);

// What stands in the system's file, and the name.
int evdns_base_load_hosts(evdns_base* base, const char* file) {
  using namespace syncguard::testing;
  static auto* const real = system_function<decltype(evdns_base_load_hosts)>("evdns_base_load_hosts");
  ++resolutions;
  const std::string address = address_now();
  if (address.empty()) return real(base, file);
  char path[] = "/tmp/syncguard-hosts-XXXXXX";
  const int made = mkstemp(path);
  if (made < 0) return real(base, file);
  close(made);
  std::ofstream{path} << std::ifstream{file}.rdbuf() << '\n' << address << ' ' << moving_name << '\n';
  const int outcome = real(base, path);
  unlink(path);
  return outcome;
}
}
