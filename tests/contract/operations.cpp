#include "contract/operations.hpp"

namespace syncguard::testing {

operation_handle start_any(kind which, client& by, std::string_view key, std::string_view id, told_end end) {
  auto done = [end = std::move(end)](const auto& outcome) { end(outcome ? nullptr : &outcome.error()); };
  switch (which) {
    case kind::acquire: return by.acquire(key, 60s, std::move(done));
    case kind::release: return by.release(id, std::move(done));
    case kind::extend: return by.extend(id, 60s, std::move(done));
    case kind::is_locked: return by.is_locked(key, std::move(done));
    case kind::lookup: return by.lookup(key, std::move(done));
    case kind::lookup_by_id: return by.lookup_by_id(id, std::move(done));
    case kind::lookup_raw: return by.lookup_raw(key, std::move(done));
    case kind::lookup_raw_by_id: return by.lookup_raw_by_id(id, std::move(done));
    case kind::owns: return by.owns(id, std::move(done));
  }
  return {};
}

}  // namespace syncguard::testing
