#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/layout/layout.h"

/// Plain arrays that stand for tensors: cut up for all ranks of a mesh, and put together again, in
/// one thread and in the most obvious way.
namespace tessera::test {

/// A row-major array.
struct Array {
  Shape shape;
  std::vector<double> data;

  explicit Array(Shape sizes, double value = 0) : shape(std::move(sizes)) {
    std::int64_t numel = 1;
    for (const auto size : shape) numel *= size;
    data.assign(static_cast<std::size_t>(numel), value);
  }

  [[nodiscard]] double& at(const Shape& index) { return data[offset(index)]; }
  [[nodiscard]] double at(const Shape& index) const { return data[offset(index)]; }

 private:
  [[nodiscard]] std::size_t offset(const Shape& index) const {
    std::int64_t position = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + index[i];
    return static_cast<std::size_t>(position);
  }
};

/// Calls `visit` with every index of an array of `shape`, the last dim turning fastest; once, with
/// no index, for an array without dims.
template <typename Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Shape index(shape.size(), 0);
  while (true) {
    visit(std::as_const(index));
    std::size_t dim = shape.size();
    while (dim > 0 && ++index[dim - 1] == shape[dim - 1]) index[--dim] = 0;
    if (dim == 0) return;
  }
}

/// Returns an array of small integers, so that sums are exact.
inline Array random_array(Random& random, const Shape& shape, std::int64_t low = -4,
                          std::int64_t high = 4) {
  Array array(shape);
  for (auto& value : array.data) value = static_cast<double>(random.between(low, high));
  return array;
}

/// The indices of a part one by one, per dim.
inline std::vector<std::vector<std::int64_t>> held_by(const Part& part) {
  std::vector<std::vector<std::int64_t>> held;
  for (const auto& dim : part.dims) {
    auto& indices = held.emplace_back();
    for (const auto& run : dim.runs()) {
      for (std::int64_t i = run.begin; i < run.end(); ++i) indices.push_back(i);
    }
  }
  return held;
}

/// Calls `visit` with the offset of every element of a part in an array of the whole `shape`, in
/// the order of the part's memory.
template <typename Visit>
void for_each_offset(const Shape& shape, const Part& part, const Visit& visit) {
  const auto held = held_by(part);
  for_each_index(part.shape(), [&](const Shape& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      offset = offset * shape[i] + held[i][static_cast<std::size_t>(index[i])];
    }
    visit(static_cast<std::size_t>(offset));
  });
}

inline Array take_part(const Array& whole, const Part& part) {
  Array local(part.shape());
  std::size_t next = 0;
  for_each_offset(whole.shape, part,
                  [&](std::size_t offset) { local.data[next++] = whole.data[offset]; });
  return local;
}

/// Counts through the mesh dims whose placement is of one kind, the last one fastest.
class MeshDigits {
 public:
  MeshDigits(const Layout& layout, bool (*kind)(const Placement&)) : mesh_(layout.mesh()) {
    for (std::size_t i = 0; i < layout.placements().size(); ++i) {
      if (!kind(layout.placements()[i])) continue;
      mesh_dims_.push_back(static_cast<std::int64_t>(i));
      count_ *= mesh_.sizes()[i];
    }
  }

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t of(std::int64_t position) const {
    std::int64_t number = 0;
    for (const auto dim : mesh_dims_) {
      number = number * mesh_.size(dim) + position / mesh_.stride(dim) % mesh_.size(dim);
    }
    return number;
  }

 private:
  MeshShape mesh_;
  std::vector<std::int64_t> mesh_dims_;
  std::int64_t count_ = 1;
};

/// Splits values into what the ranks of Partial mesh dims contribute. Ranks that differ along other
/// mesh dims contribute alike.
class Contributions {
 public:
  explicit Contributions(const Layout& layout) : layout_(layout), digits_(layout, is_partial) {
    for (std::size_t i = 0; i < layout.placements().size(); ++i) {
      if (layout.placements()[i] == Placement(Partial(ReduceOp::avg))) {
        divisor_ *= layout.mesh().sizes()[i];
      }
    }
  }

  [[nodiscard]] std::int64_t count() const { return digits_.count(); }
  /// Which contribution the rank at a mesh position makes.
  [[nodiscard]] std::int64_t of(std::int64_t position) const { return digits_.of(position); }

  /// Returns the contributions to `value`: random, but for what makes them come out right.
  [[nodiscard]] std::vector<double> split(Random& random, double value) const {
    if (count() == 1) return {value};
    std::vector<double> parts(static_cast<std::size_t>(count()));
    for (auto& part : parts) part = static_cast<double>(random.between(-4, 4));
    const auto lucky = static_cast<std::size_t>(random.between(0, count() - 1));
    if (layout_.reduce_op() == ReduceOp::max) {
      for (auto& part : parts) part = std::min(part, value);
      parts[lucky] = value;
      return parts;
    }
    if (layout_.reduce_op() != ReduceOp::sum && layout_.reduce_op() != ReduceOp::avg) {
      throw InternalError("Contributions::split: implemented for sum, avg and max");
    }
    parts[lucky] = 0;
    parts[lucky] =
        value * static_cast<double>(divisor_) - std::accumulate(parts.begin(), parts.end(), 0.0);
    return parts;
  }

  /// Returns the value that contributions stand for.
  [[nodiscard]] double reduce(std::span<const double> parts) const {
    double result = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      switch (layout_.reduce_op().value()) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          result += parts[i];
          break;
        case ReduceOp::max:
          result = std::max(result, parts[i]);
          break;
        case ReduceOp::min:
          result = std::min(result, parts[i]);
          break;
        case ReduceOp::product:
          result *= parts[i];
          break;
        default:
          throw InternalError("Contributions::reduce: implemented for numbers, not for bits");
      }
    }
    return result / static_cast<double>(divisor_);
  }

 private:
  Layout layout_;
  MeshDigits digits_;
  std::int64_t divisor_ = 1;
};

/// Returns the local array of every mesh position; Partial ones are decomposed at random.
inline std::vector<Array> distribute(Random& random, const Array& whole, const Layout& layout) {
  const Contributions contributions(layout);
  std::vector<Array> wholes(static_cast<std::size_t>(contributions.count()), Array(whole.shape));
  for (std::size_t i = 0; i < whole.data.size(); ++i) {
    const auto parts = contributions.split(random, whole.data[i]);
    for (std::size_t j = 0; j < parts.size(); ++j) wholes[j].data[i] = parts[j];
  }
  std::vector<Array> locals;
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    const auto contribution = static_cast<std::size_t>(contributions.of(position));
    locals.push_back(take_part(wholes[contribution], layout.part_at(position)));
  }
  return locals;
}

/// Equal but for rounding; NaN equals NaN.
inline bool nearly_equal(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(a - b) <= 1e-9 * (1 + std::abs(a) + std::abs(b));
}

/// Returns what is wrong with the local arrays of all mesh positions as parts of `whole` in
/// `layout`, or nothing: local shapes must be the layout's, every replica of every element must be
/// there and right, contributions being reduced.
inline std::optional<std::string> difference(const std::vector<Array>& locals, const Layout& layout,
                                             const Array& whole) {
  const Contributions contributions(layout);
  const MeshDigits replicas(layout, is_replicate);
  const auto numel = whole.data.size();
  const auto count = static_cast<std::size_t>(contributions.count());
  // By replica, element and contribution.
  std::vector<double> found(static_cast<std::size_t>(replicas.count()) * numel * count);
  std::vector<int> times(found.size(), 0);
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    const Array& local = locals[static_cast<std::size_t>(position)];
    const Part part = layout.part_at(position);
    if (local.shape != part.shape()) {
      return concat("position ", position, " has shape [", joined(local.shape), "] instead of [",
                    joined(part.shape()), "]");
    }
    const auto replica = static_cast<std::size_t>(replicas.of(position));
    const auto contribution = static_cast<std::size_t>(contributions.of(position));
    std::size_t next = 0;
    for_each_offset(whole.shape, part, [&](std::size_t offset) {
      const std::size_t at = (replica * numel + offset) * count + contribution;
      found[at] = local.data[next++];
      ++times[at];
    });
  }
  if (std::any_of(times.begin(), times.end(), [](int seen) { return seen != 1; })) {
    return "an element is missing or there twice";
  }
  for (std::size_t i = 0; i < found.size(); i += count) {
    const double got = contributions.reduce(std::span(found).subspan(i, count));
    const double expected = whole.data[i / count % numel];
    if (!nearly_equal(got, expected)) {
      return concat("element ", i / count % numel, " is ", got, " instead of ", expected);
    }
  }
  return std::nullopt;
}

}  // namespace tessera::test
