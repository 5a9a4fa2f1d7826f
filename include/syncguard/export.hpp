#pragma once

// Everything in the library is hidden unless marked with this macro, so the shared library exports the public API
// and nothing else: neither our internals nor the libraries that are linked into it.
#define SYNCGUARD_API __attribute__((visibility("default")))

// For what lies inside something public and is not public itself.
#define SYNCGUARD_LOCAL __attribute__((visibility("hidden")))
