// Why a lock hands out a fence: a store that remembers the highest one refuses the late write of a holder that lost
// its lock without noticing, because it was paused, swapped out or cut off.

#include <cstdio>
#include <optional>
#include <string>

#include <syncguard/fence.hpp>

namespace {

class fenced_store {
 public:
  // Takes the write unless a later holder has written already.
  bool write(syncguard::fence token, std::string value) {
    if (highest_ && token < *highest_) return false;
    highest_ = token;
    value_ = std::move(value);
    return true;
  }

  const std::string& value() const { return value_; }

 private:
  std::optional<syncguard::fence> highest_;
  std::string value_;
};

}  // namespace

int main() {
  // What two acquisitions of one lock, one after the other, were given.
  const auto first = syncguard::fence::parse("000000000000041");
  const auto second = syncguard::fence::parse("000000000000042");
  if (!first || !second) return 1;

  fenced_store store;
  const bool taken = store.write(*second, "score 3:1");      // the present holder
  const bool late = store.write(*first, "score 2:1, late");  // the former one, awake again
  std::printf("present holder: %s, former holder: %s, stored: %s\n", taken ? "written" : "refused",
              late ? "written" : "refused", store.value().c_str());
  return taken && !late ? 0 : 1;
}
