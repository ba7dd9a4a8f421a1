#include "tessera/tensor/global_shape.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <ATen/ops/tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/op_call.h"

namespace tessera::detail {
namespace {

/// A record travels in so many numbers, unless a tensor has more dims: so ranks whose tensors have
/// different numbers of dims still find out.
constexpr std::size_t kDimsOfRecord = 8;

bool is_cut(const DeviceMesh& mesh, const Placements& placements) {
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    if (is_sharded(placements[dim]) && mesh.size(static_cast<std::int64_t>(dim)) > 1) return true;
  }
  return false;
}

/// The dtype, the number of dims, then the sizes and zeros.
std::vector<std::int64_t> packed(const std::vector<at::Tensor>& locals) {
  std::vector<std::int64_t> words;
  for (const auto& local : locals) {
    words.push_back(static_cast<std::int64_t>(local.scalar_type()));
    words.push_back(local.dim());
    words.insert(words.end(), local.sizes().begin(), local.sizes().end());
    const auto dims = static_cast<std::size_t>(local.dim());
    if (dims < kDimsOfRecord) words.insert(words.end(), kDimsOfRecord - dims, 0);
  }
  return words;
}

PartRecord unpack_record(const std::int64_t*& words) {
  PartRecord record{static_cast<at::ScalarType>(words[0]), Shape(words + 2, words + 2 + words[1])};
  words += 2 + std::max(record.shape.size(), kDimsOfRecord);
  return record;
}

std::int64_t tensor_dim_of(const Placement& placement) {
  if (const auto* shard = std::get_if<Shard>(&placement)) return shard->dim;
  if (const auto* strided = std::get_if<StridedShard>(&placement)) return strided->dim;
  return -1;
}

/// The positions of the ranks that differ from the first one only along mesh dims that cut `dim`.
std::vector<std::int64_t> positions_along(const DeviceMesh& mesh, const Placements& placements,
                                          std::int64_t dim, std::int64_t ndim) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const Coordinate coordinate = mesh.shape().coordinate_at(i);
    bool is_along = true;
    for (std::size_t d = 0; d < placements.size(); ++d) {
      std::int64_t cut = tensor_dim_of(placements[d]);
      if (is_sharded(placements[d]) && cut < 0) cut += ndim;
      is_along = is_along && (coordinate[d] == 0 || cut == dim);
    }
    if (is_along) positions.push_back(i);
  }
  return positions;
}

void check_parts(const std::string& function, const std::vector<PartRecord>& parts,
                 const DeviceMesh& mesh, const Layout& layout) {
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const PartRecord& part = parts[static_cast<std::size_t>(i)];
    const PartRecord expected{parts[0].dtype, layout.local_shape(i)};
    TESSERA_CHECK(part == expected, function, ": Inconsistent tensor metadata: rank ",
                  mesh.shape().rank_at(i), " holds ", part, ", but in ", layout, " it would be ",
                  expected, " as on rank ", mesh.shape().rank_at(0), " with ", parts[0],
                  "; shards are cut into equal chunks, the last ones smaller or empty (5 over 4 is "
                  "2, 2, 1, 0)");
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& os, const PartRecord& part) {
  return os << short_name(part.dtype) << '[' << joined(part.shape, ",") << ']';
}

std::vector<std::vector<PartRecord>> gather_parts(const std::vector<at::Tensor>& locals,
                                                  const DeviceMesh& mesh) {
  const auto own = packed(locals);
  const std::vector<std::int64_t> widths(static_cast<std::size_t>(mesh.size()),
                                         static_cast<std::int64_t>(own.size()));
  const at::Tensor words = at::tensor(own, at::kLong).to(locals[0].device());
  const at::Tensor all = all_gather(words, 0, mesh.group(), {.sizes = widths}).cpu();
  const auto* next = all.const_data_ptr<std::int64_t>();
  std::vector<std::vector<PartRecord>> parts(static_cast<std::size_t>(mesh.size()));
  for (auto& records : parts) {
    for (std::size_t i = 0; i < locals.size(); ++i) records.push_back(unpack_record(next));
  }
  return parts;
}

Shape shape_of_parts(const std::string& function, const std::vector<PartRecord>& parts,
                     const DeviceMesh& mesh, const Placements& placements,
                     const std::optional<Shape>& given) {
  const std::size_t ndim = parts[0].shape.size();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    TESSERA_CHECK(parts[i].shape.size() == ndim, function, ": Inconsistent tensor metadata: rank ",
                  mesh.shape().rank_at(static_cast<std::int64_t>(i)), " holds ", parts[i],
                  ", but rank ", mesh.shape().rank_at(0), " holds ", parts[0],
                  "; parts of one tensor have the same number of dims");
  }
  Shape shape;
  for (std::size_t dim = 0; dim < ndim && !given; ++dim) {
    std::int64_t size = 0;
    for (const auto position : positions_along(mesh, placements, static_cast<std::int64_t>(dim),
                                               static_cast<std::int64_t>(ndim))) {
      size += parts[static_cast<std::size_t>(position)].shape[dim];
    }
    shape.push_back(size);
  }
  if (given) shape = *given;
  check_parts(function, parts, mesh, checked_layout(function.c_str(), mesh, placements, shape));
  return shape;
}

Shape global_shape(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                   const FromLocalOptions& options) {
  const std::int64_t ndim = local.dim();
  if (!options.run_check && !is_cut(mesh, placements)) return local.sizes().vec();
  // Ranks outside hold nothing and cannot know: they must be told.
  if (!mesh.shape().contains(mesh.world().rank())) {
    TESSERA_CHECK(options.shape.has_value(), "from_local: rank ", mesh.world().rank(),
                  " is outside of ", mesh, " and cannot learn the global shape; pass .shape");
    return *options.shape;
  }
  // Checks placements before anything is sent; the sizes do not matter for that.
  (void)checked_layout("from_local", mesh, placements, Shape(static_cast<std::size_t>(ndim), 1));
  std::vector<PartRecord> parts;
  const CauseScope cause("shapes for from_local");
  for (auto& records : gather_parts({local}, mesh)) parts.push_back(std::move(records[0]));
  return shape_of_parts("from_local", parts, mesh, placements, options.shape);
}

void check_local_shape(const char* function, const at::Tensor& local, const DeviceMesh& mesh,
                       const Layout& layout) {
  const auto position = mesh.shape().position_of(mesh.world().rank());
  if (!position) return;
  const Shape expected = layout.local_shape(*position);
  TESSERA_CHECK(local.sizes() == at::IntArrayRef(expected), function, ": a local tensor of shape [",
                joined(local.sizes(), ","), "] given on rank ", mesh.world().rank(), "; in ",
                layout, " it is [", joined(expected, ","), "]");
}

at::Tensor with_equal_replicas(const at::Tensor& local, const DeviceMesh& mesh,
                               const Layout& layout) {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const bool is_copy = is_replicate(layout.placements()[static_cast<std::size_t>(dim)]);
    if (is_copy && mesh.size(dim) > 1) dims.push_back(dim);
  }
  if (dims.empty() || !mesh.shape().contains(mesh.world().rank())) return local;
  const CauseScope cause("from_local: equal replicas");
  return broadcast(local.detach(), 0, mesh.group(dims));
}

}  // namespace tessera::detail
