#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

namespace gpt {

/// A short story to learn from; written for this project.
[[nodiscard]] std::string_view story();

/// One step's data: each row of `targets` is its row of `tokens` one character further on.
struct Batch {
  torch::Tensor tokens;
  torch::Tensor targets;
};

/// A text as numbers, one per character, and batches of pieces of it.
class Text {
 public:
  explicit Text(std::string_view text);

  /// How many different characters there are.
  [[nodiscard]] std::int64_t vocabulary() const {
    return static_cast<std::int64_t>(characters_.size());
  }
  /// The same pieces for the same step everywhere: plain tensors [rows, length] of int64.
  [[nodiscard]] Batch batch(std::int64_t step, std::int64_t rows, std::int64_t length) const;

 private:
  std::string characters_;
  std::vector<std::int64_t> numbers_;
};

}  // namespace gpt
