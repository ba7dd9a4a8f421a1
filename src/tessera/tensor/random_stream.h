#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"

namespace tessera::detail {

/// The random numbers of one operation: 64 bits for every global element index. Counter-based
/// (Philox 4x32-10), so any part can be drawn without the rest.
class RandomStream {
 public:
  /// The stream of the calling rank's next random operation.
  [[nodiscard]] static RandomStream next();

  /// The bits of an element.
  [[nodiscard]] std::uint64_t bits(std::uint64_t index) const {
    const auto block = blocks(index / 2);
    return index % 2 == 0 ? block[0] : block[1];
  }
  /// The bits of elements 2 * `pair` and 2 * `pair` + 1.
  [[nodiscard]] std::array<std::uint64_t, 2> blocks(std::uint64_t pair) const;

  /// A generator of libtorch that every rank seeds alike, for ops without a kernel of ours.
  [[nodiscard]] at::Generator generator(const at::Device& device) const;

 private:
  RandomStream(std::uint64_t seed, std::uint64_t number) : seed_(seed), number_(number) {}

  std::uint64_t seed_;
  std::uint64_t number_;
};

/// Returns an evenly distributed number in [0, 1): as many bits as the dtype can tell apart, so that
/// rounding never gives 1.
[[nodiscard]] double unit_number(std::uint64_t bits, at::ScalarType dtype);
/// Returns a normally distributed number.
[[nodiscard]] double normal_number(std::uint64_t bits);

/// Returns a contiguous tensor of the elements that `part` has of a tensor of `shape`, `draw(bits)`
/// each; `dtype` is float32 or float64 (others are converted from them by the caller).
[[nodiscard]] at::Tensor draw_part(const RandomStream& stream, const Part& part, const Shape& shape,
                                   const at::TensorOptions& options,
                                   const std::function<double(std::uint64_t bits)>& draw);
/// The same for a local part of `layout`.
[[nodiscard]] at::Tensor draw_local(const RandomStream& stream, const Layout& layout,
                                    std::int64_t position, const at::TensorOptions& options,
                                    const std::function<double(std::uint64_t bits)>& draw);

}  // namespace tessera::detail
