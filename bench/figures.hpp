#pragma once

// Figures that are not rounds of operations: their table and their JSON file, in the form that harness.hpp writes. And
// what every benchmark's command line needs.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncguard::bench {

inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 64;

struct figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<double> baseline{};  // nothing: there is nothing to compare with
  std::optional<double> ratio{};
  std::optional<double> allocations_per_operation{};
  std::string note{};  // for the table only: what was wanted, or how it was measured
};

// The heading of the baseline's column says what the baseline is.
void print_figures(const std::vector<figure>& figures, const char* baseline_heading);

// Returns: whether the file was written as a whole.
[[nodiscard]] bool write_figures(const std::string& path, const std::vector<figure>& figures);

// The value below which this share of the samples lies. Sorts them.
double percentile(std::vector<double>& samples, double share);

// Whether the file can be written: better known before the run than after it. Says on standard error why not.
[[nodiscard]] bool is_writable(const char* program, const std::string& path);

std::string unix_url(std::string_view socket_path);

}  // namespace syncguard::bench
