#include <event2/event.h>

#include <syncguard/version.hpp>

int main() {
  event_base* base = event_base_new();
  if (base == nullptr) return 1;
  const bool fine = syncguard::library_version()[0] != '\0' && event_base_dispatch(base) == 1;
  event_base_free(base);
  return fine ? 0 : 1;
}
