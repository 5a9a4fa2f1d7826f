#pragma once

// A host name whose address a test can change, for both resolvers: libuv asks getaddrinfo(), libevent reads the file of
// hosts. Whoever links moving_name.cpp gets both in front of the system's own; all other names are answered as ever.

#include <string_view>

namespace syncguard::testing {

inline constexpr std::string_view moving_name = "moving.test";

// From here on the name has this numeric address; with an empty one it does not exist.
void move_name(std::string_view address);

// How often somebody has asked for it.
int times_resolved();

}  // namespace syncguard::testing
