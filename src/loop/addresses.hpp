#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace syncguard {

// The numeric forms of what a resolver answered.
inline std::vector<std::string> numeric_addresses(const addrinfo* first) {
  std::vector<std::string> all;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      all.emplace_back(text);
  }
  return all;
}

}  // namespace syncguard
