#include "tessera/tensor/global_shape.h"

#include <algorithm>

#include <ATen/ops/tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/op_call.h"

namespace tessera::detail {
namespace {

/// The dtype, then the sizes.
using Record = std::vector<std::int64_t>;

/// Records are sent with room for so many dims, or more where a tensor has more: equally long, they
/// arrive even from ranks whose tensors have another number of dims.
constexpr std::int64_t kUsualDims = 16;

bool is_cut(const DeviceMesh& mesh, const Placements& placements) {
  for (std::size_t dim = 0; dim < placements.size(); ++dim) {
    if (is_sharded(placements[dim]) && mesh.size(static_cast<std::int64_t>(dim)) > 1) return true;
  }
  return false;
}

/// All ranks' records in the mesh's order.
std::vector<Record> gather_records(const at::Tensor& local, const DeviceMesh& mesh) {
  const std::int64_t width = std::max(local.dim(), kUsualDims) + 2;
  Record own = {local.dim(), static_cast<std::int64_t>(local.scalar_type())};
  own.insert(own.end(), local.sizes().begin(), local.sizes().end());
  own.resize(static_cast<std::size_t>(width));
  const CauseScope cause("shapes for from_local");
  const auto all =
      all_gather(at::tensor(own, at::kLong).to(local.device()), 0, mesh.group(),
                 {.sizes = std::vector<std::int64_t>(static_cast<std::size_t>(mesh.size()), width)})
          .cpu();
  std::vector<Record> records;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const auto* begin = all.const_data_ptr<std::int64_t>() + i * width;
    records.emplace_back(begin + 1, begin + 2 + begin[0]);
  }
  return records;
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

std::string describe(const Record& record) {
  return concat(short_name(static_cast<at::ScalarType>(record[0])), '[',
                joined(Record(record.begin() + 1, record.end()), ","), ']');
}

void check_dims(const std::vector<Record>& records, const DeviceMesh& mesh) {
  for (std::int64_t i = 1; i < mesh.size(); ++i) {
    const Record& record = records[static_cast<std::size_t>(i)];
    TESSERA_CHECK(record.size() == records[0].size(),
                  "from_local: Inconsistent tensor metadata: rank ", mesh.shape().rank_at(0),
                  " holds ", describe(records[0]), ", rank ", mesh.shape().rank_at(i), ' ',
                  describe(record), "; all parts must have the same number of dims");
  }
}

void check_records(const std::vector<Record>& records, const DeviceMesh& mesh,
                   const Layout& layout) {
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const Record& record = records[static_cast<std::size_t>(i)];
    Record expected = {records[0][0]};
    const Shape shape = layout.local_shape(i);
    expected.insert(expected.end(), shape.begin(), shape.end());
    TESSERA_CHECK(record == expected, "from_local: Inconsistent tensor metadata: rank ",
                  mesh.shape().rank_at(i), " holds ", describe(record), ", but in ", layout,
                  " it would be ", describe(expected), " as on rank ", mesh.shape().rank_at(0),
                  " with ", describe(records[0]),
                  "; shards are cut into equal chunks, the last ones smaller or empty (5 over 4 is "
                  "2, 2, 1, 0)");
  }
}

}  // namespace

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
  const auto records = gather_records(local, mesh);
  check_dims(records, mesh);
  Shape shape;
  if (options.shape.has_value()) {
    shape = *options.shape;
  } else {
    for (std::int64_t dim = 0; dim < ndim; ++dim) {
      std::int64_t size = 0;
      for (const auto position : positions_along(mesh, placements, dim, ndim)) {
        size += records[static_cast<std::size_t>(position)][static_cast<std::size_t>(dim) + 1];
      }
      shape.push_back(size);
    }
  }
  check_records(records, mesh, Layout(mesh.shape(), placements, shape));
  return shape;
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
