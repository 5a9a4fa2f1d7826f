#pragma once

// What the cases of the cut matrix share: seats, which are clients with a gate of their own, many of them in one loop;
// and a look at what the server holds.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/locks.hpp"
#include "faults/cutting_proxy.hpp"

namespace syncguard::testing {

// How long many cases together may take. Only a failing run ever waits for so long.
inline constexpr auto round_patience = 120s;

// A client must not give up by itself, where it is not the stall that is to end it.
inline constexpr milliseconds steadfast = 60s;

struct seat {
  gate* way = nullptr;
  std::unique_ptr<client> own;
};

// Seats, the proxy and a connection to look through. Made by a case's set-up, so that a failing case leaves nothing.
struct cut_world {
  std::unique_ptr<cutting_proxy> proxy;
  std::vector<seat> seats;
  std::unique_ptr<watching_connection> inspector;
  std::size_t keys_made = 0;

  std::string fresh_key();

  // Gives the seat a new client. Time-outs of zero: steadfast.
  client& reseat(seat& which, milliseconds timeout, milliseconds connect_timeout) const;

  // The lock id in the record of this key; empty where there is none.
  std::string owner_of(std::string_view key) const;

  // How many of these keys have a record.
  long long held_among(const std::vector<std::string>& keys) const;
};

cut_world& cuts();

int set_up_cuts(void** state);
int tear_down_cuts(void** state);

// Fails the case where anything but fence counters is left on the server: a lock for nobody.
void nothing_is_left();

// Every how many offsets a long stream is cut: 1, but sanitizers make everything slow.
std::size_t long_stride();

const char* name_of(fate how);
const char* name_of(direction where);

}  // namespace syncguard::testing
