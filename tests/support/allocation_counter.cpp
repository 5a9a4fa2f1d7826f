#include "support/allocation_counter.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SYNCGUARD_COUNT_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SYNCGUARD_COUNT_ALLOCATIONS 0
#endif
#endif
#ifndef SYNCGUARD_COUNT_ALLOCATIONS
#define SYNCGUARD_COUNT_ALLOCATIONS 1
#endif

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

#if SYNCGUARD_COUNT_ALLOCATIONS

extern "C" {

// The C library's own allocator, under the names that remain when its public ones are replaced.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)

void* malloc(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}

void* realloc(void* block, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(block, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}

#endif

namespace syncguard::testing {

bool allocation_counter::available() noexcept { return SYNCGUARD_COUNT_ALLOCATIONS != 0; }
std::uint64_t allocation_counter::total() noexcept { return allocations.load(std::memory_order_relaxed); }
std::uint64_t allocation_counter::count() const noexcept { return total() - before_; }

}  // namespace syncguard::testing
