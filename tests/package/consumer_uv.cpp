#include <uv.h>

#include <syncguard/version.hpp>

int main() {
  uv_loop_t loop;
  if (uv_loop_init(&loop) != 0) return 1;
  const bool fine = syncguard::library_version()[0] != '\0' && uv_run(&loop, UV_RUN_DEFAULT) == 0;
  return uv_loop_close(&loop) == 0 && fine ? 0 : 1;
}
