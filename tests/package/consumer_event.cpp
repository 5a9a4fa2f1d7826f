#include <event2/event.h>

#include <cstdio>

#include <syncguard/client.hpp>
#include <syncguard/event.hpp>
#include <syncguard/version.hpp>

int main() {
  event_base* base = event_base_new();
  {
    syncguard::client client{syncguard::event(base), {.url = "nonsense"}};
    client.acquire("match:42", std::chrono::seconds{10}, [](syncguard::result<std::optional<syncguard::grant>> got) {
      std::printf("syncguard %s: %s\n", syncguard::library_version(), describe(got.error()).c_str());
    });
    event_base_dispatch(base);
  }
  event_base_free(base);
}
