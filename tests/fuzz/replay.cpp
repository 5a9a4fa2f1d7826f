// Runs a fuzz target on inputs that are kept: the files that are named, and all files of the folders that are named.
// Needs no fuzzer, so every compiler and every sanitizer can do it. The last file in the output is the one to blame.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "fuzz.hpp"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(int count, char** names) {
  std::vector<fs::path> files;
  for (int index = 1; index < count; ++index) {
    if (!fs::is_directory(names[index])) {
      files.emplace_back(names[index]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator{names[index]})
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool run(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  if (!file.good() && !file.eof()) return false;
  // A copy of exactly this size, so that a sanitizer sees each step beyond its end.
  const auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), bytes.size());
  return true;
}

}  // namespace

int main(int count, char** names) {
  const auto files = files_in(count, names);
  for (const auto& path : files) {
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);
    if (run(path)) continue;
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    return 1;
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s FILE_OR_FOLDER...: no inputs were found\n", names[0]);
    return 1;
  }
  std::printf("%zu inputs\n", files.size());
  return 0;
}
