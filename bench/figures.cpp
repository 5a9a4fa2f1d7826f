#include "figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>

namespace syncguard::bench {

namespace {

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

std::string text(const char* format, double value) {
  char out[64];
  std::snprintf(out, sizeof out, format, value);
  return out;
}

std::string readable(const std::optional<double>& value) {
  if (!value) return "-";
  const bool whole = std::abs(*value) >= 1000 || *value == std::floor(*value);
  return text(whole ? "%.0f" : "%.2f", *value);
}

std::string json(const std::optional<double>& value) { return value ? text("%.6g", *value) : "null"; }

}  // namespace

void print_figures(const std::vector<figure>& figures, const char* baseline_heading) {
  std::printf("%-26s %12s %-12s %12s %8s %10s\n", "", "value", "unit", baseline_heading, "ratio", "allocs/op");
  for (const figure& each : figures) {
    const std::string allocations =
        each.allocations_per_operation ? text("%.3f", *each.allocations_per_operation) : "-";
    std::printf("%-26s %12s %-12s %12s %8s %10s%s%s\n", each.name.c_str(), readable(each.value).c_str(),
                each.unit.c_str(), readable(each.baseline).c_str(), readable(each.ratio).c_str(), allocations.c_str(),
                each.note.empty() ? "" : "  ", each.note.c_str());
  }
}

bool write_figures(const std::string& path, const std::vector<figure>& figures) {
  std::unique_ptr<std::FILE, file_closer> file{std::fopen(path.c_str(), "w")};
  if (file == nullptr) return false;
  std::fprintf(file.get(), "[");
  const char* separator = "\n";
  for (const figure& each : figures) {
    std::fprintf(file.get(),
                 "%s  {\"name\": \"%s\", \"value\": %s, \"unit\": \"%s\", \"baseline\": %s, \"ratio\": %s, "
                 "\"allocs_per_op\": %s}",
                 separator, each.name.c_str(), json(each.value).c_str(), each.unit.c_str(), json(each.baseline).c_str(),
                 json(each.ratio).c_str(), json(each.allocations_per_operation).c_str());
    separator = ",\n";
  }
  std::fprintf(file.get(), "\n]\n");
  return std::ferror(file.get()) == 0 && std::fclose(file.release()) == 0;
}

double percentile(std::vector<double>& samples, double share) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(samples.size())));
  return samples[std::min(samples.size(), std::max<std::size_t>(rank, 1)) - 1];
}

bool is_writable(const char* program, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) {
    std::perror((std::string{program} + ": " + path).c_str());
    return false;
  }
  return std::fclose(file) == 0;
}

std::string unix_url(std::string_view socket_path) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~";
  std::string url = "unix://";
  for (const char character : socket_path) {
    char escaped[4];
    std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(character)));
    if (plain.find(character) != std::string_view::npos) url += character;
    else url += escaped;
  }
  return url;
}

}  // namespace syncguard::bench
