#include "tessera/tensor/random_stream.h"

#include <cmath>
#include <numbers>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include "tessera/tensor/random.h"

namespace tessera {
namespace detail {
namespace {

constexpr std::uint64_t kDefaultSeed = 20'250'317;

/// Where the calling rank is in its sequence of random operations.
struct Sequence {
  std::uint64_t seed = kDefaultSeed;
  std::uint64_t next = 0;
};

thread_local Sequence sequence;

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

using Counter = std::array<std::uint32_t, 4>;

std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }
std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

Counter philox(Counter counter, std::uint64_t key) {
  std::uint32_t key0 = low(key);
  std::uint32_t key1 = high(key);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1),
               high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

/// Calls `visit(local, global, length)` for runs of a part that are contiguous in the whole too.
template <typename Visit>
void visit_runs(const Part& part, const Shape& shape, const Visit& visit) {
  const std::size_t ndim = shape.size();
  if (ndim == 0) {
    visit(std::int64_t{0}, std::int64_t{0}, std::int64_t{1});
    return;
  }
  std::int64_t local = 0;
  const std::function<void(std::size_t, std::int64_t)> descend = [&](std::size_t dim,
                                                                     std::int64_t base) {
    for (const auto& run : part.dims[dim].runs()) {
      if (dim + 1 == ndim) {
        visit(local, base + run.begin, run.size);
        local += run.size;
        continue;
      }
      for (std::int64_t i = run.begin; i < run.begin + run.size; ++i) {
        descend(dim + 1, (base + i) * shape[dim + 1]);
      }
    }
  };
  if (part.numel() > 0) descend(0, 0);
}

template <typename T>
void fill(T* out, const RandomStream& stream, const Part& part, const Shape& shape,
          const std::function<double(std::uint64_t)>& draw) {
  visit_runs(part, shape, [&](std::int64_t local, std::int64_t global, std::int64_t length) {
    auto index = static_cast<std::uint64_t>(global);
    const std::uint64_t end = index + static_cast<std::uint64_t>(length);
    T* next = out + local;
    while (index < end) {
      const auto block = stream.blocks(index / 2);
      if (index % 2 == 0) {
        *next++ = static_cast<T>(draw(block[0]));
        if (++index == end) break;
      }
      *next++ = static_cast<T>(draw(block[1]));
      ++index;
    }
  });
}

}  // namespace

RandomStream RandomStream::next() { return {sequence.seed, sequence.next++}; }

std::array<std::uint64_t, 2> RandomStream::blocks(std::uint64_t pair) const {
  const Counter block = philox({low(pair), high(pair), low(number_), high(number_)}, seed_);
  return {std::uint64_t{block[0]} << 32 | block[1], std::uint64_t{block[2]} << 32 | block[3]};
}

at::Generator RandomStream::generator(const at::Device& device) const {
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(bits(0));
  return generator;
}

double unit_number(std::uint64_t bits, at::ScalarType dtype) {
  if (dtype == at::kDouble) return static_cast<double>(bits >> 11) * 0x1p-53;
  const int digits = dtype == at::kHalf ? 11 : dtype == at::kBFloat16 ? 8 : 24;
  return std::ldexp(static_cast<double>(bits >> (64 - digits)), -digits);
}

double normal_number(std::uint64_t bits) {
  // Box and Muller: one half of the bits is the radius, the other the angle.
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(bits >> 32) + 1) * 0x1p-32));
  const double angle =
      2 * std::numbers::pi * static_cast<double>(static_cast<std::uint32_t>(bits)) * 0x1p-32;
  return radius * std::cos(angle);
}

at::Tensor draw_part(const RandomStream& stream, const Part& part, const Shape& shape,
                     const at::TensorOptions& options,
                     const std::function<double(std::uint64_t bits)>& draw) {
  // Drawn on the host, whatever the device: the same bits everywhere.
  const bool is_double = c10::typeMetaToScalarType(options.dtype()) == at::kDouble;
  auto local =
      at::empty(part.shape(), at::TensorOptions().dtype(is_double ? at::kDouble : at::kFloat));
  if (is_double) {
    fill(local.mutable_data_ptr<double>(), stream, part, shape, draw);
  } else {
    fill(local.mutable_data_ptr<float>(), stream, part, shape, draw);
  }
  return local;
}

at::Tensor draw_local(const RandomStream& stream, const Layout& layout, std::int64_t position,
                      const at::TensorOptions& options,
                      const std::function<double(std::uint64_t bits)>& draw) {
  return draw_part(stream, layout.part_at(position), layout.shape(), options, draw);
}

}  // namespace detail

void manual_seed(std::uint64_t seed) { detail::sequence = {seed, 0}; }

}  // namespace tessera
