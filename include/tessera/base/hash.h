#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace tessera {

/// Returns `seed` with `value` mixed in; order matters, and the result is spread over all bits.
[[nodiscard]] constexpr std::size_t hash_combine(std::size_t seed, std::size_t value) {
  // The finaliser of splitmix64: cheap, and small integers (most of our fields) do not collide.
  std::uint64_t mixed = seed * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<std::size_t>(mixed ^ (mixed >> 31));
}

/// Returns a hash over the items of `range`, in order.
template <typename Range>
[[nodiscard]] std::size_t hash_range(const Range& range) {
  std::size_t seed = 0;
  for (const auto& item : range) {
    seed = hash_combine(seed, std::hash<std::decay_t<decltype(item)>>{}(item));
  }
  return seed;
}

}  // namespace tessera
