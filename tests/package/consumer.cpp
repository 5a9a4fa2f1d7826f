#include <cstdio>

#include <syncguard/fence.hpp>
#include <syncguard/version.hpp>

int main() {
  const auto token = syncguard::fence::parse("000000000000042");
  const auto refused = syncguard::fence::parse("nonsense");
  if (!token || refused) return 1;
  std::printf("syncguard %s, fence %s, %s\n", syncguard::library_version(), token->number() == 42 ? "42" : "wrong",
              describe(refused.error()).c_str());
}
