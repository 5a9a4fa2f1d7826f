#include <syncguard/version.hpp>

namespace syncguard {

const char* library_version() noexcept { return SYNCGUARD_VERSION; }

}  // namespace syncguard
