#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/concat.h"

namespace tessera::detail {

/// Names for the dims of a tensor, with which rules for any number of dims are written.
///
///     const Dims dims("a", 3);        // a0 a1 a2
///     dims.text()                     // (a0 a1 a2)
class Dims {
 public:
  Dims() = default;
  Dims(const std::string& stem, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) names_.push_back(concat(stem, i));
  }

  std::string& operator[](std::int64_t dim) { return names_[static_cast<std::size_t>(dim)]; }
  const std::string& operator[](std::int64_t dim) const {
    return names_[static_cast<std::size_t>(dim)];
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(names_.size()); }

  void push_back(std::string name) { names_.push_back(std::move(name)); }
  void insert(std::int64_t at, std::string name) {
    names_.insert(names_.begin() + at, std::move(name));
  }
  void erase(std::int64_t at) { names_.erase(names_.begin() + at); }

  [[nodiscard]] std::string text() const { return concat('(', joined(names_, " "), ')'); }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// Counts a negative dim from the end; a tensor without dims is indexed as if it had one.
[[nodiscard]] inline std::int64_t wrap_dim(std::int64_t dim, std::int64_t ndim) {
  return dim < 0 ? dim + std::max<std::int64_t>(ndim, 1) : dim;
}

}  // namespace tessera::detail
