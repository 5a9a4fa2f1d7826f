#include <uv.h>

#include <cstdio>

#include <syncguard/client.hpp>
#include <syncguard/uv.hpp>
#include <syncguard/version.hpp>

int main() {
  syncguard::client client{syncguard::uv(uv_default_loop()), {.url = "nonsense"}};
  client.acquire("match:42", std::chrono::seconds{10}, [](syncguard::result<std::optional<syncguard::grant>> got) {
    std::printf("syncguard %s: %s\n", syncguard::library_version(), describe(got.error()).c_str());
  });
  return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
