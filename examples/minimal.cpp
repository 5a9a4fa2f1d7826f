// One lock, taken and given back. Needs a Redis at the address below, or at the one given as the first argument.

#include <uv.h>

#include <cstdio>

#include <syncguard/client.hpp>
#include <syncguard/uv.hpp>

int main(int count, char** arguments) {
  using namespace std::chrono_literals;
  syncguard::client client{syncguard::uv(uv_default_loop()),
                           {.url = count > 1 ? arguments[1] : "redis://127.0.0.1:6379"}};

  client.acquire("match:42", 10s, [&](syncguard::result<std::optional<syncguard::grant>> got) {
    if (!got) {
      std::puts(describe(got.error()).c_str());
    } else if (!*got) {
      std::puts("somebody else has it");
    } else {
      std::printf("it is ours, with fence %llu\n", static_cast<unsigned long long>((*got)->fence.number()));
      client.release((*got)->id, nullptr);
    }
    client.close(nullptr);  // once the release is through
  });
  return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
