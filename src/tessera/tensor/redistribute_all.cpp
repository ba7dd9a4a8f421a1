#include "tessera/base/check.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera {
namespace {

constexpr const char* kName = "redistribute_all";

void check_count(const char* what, std::size_t given, std::size_t tensors) {
  TESSERA_CHECK(given == tensors || given == 1, kName, ": ", given, ' ', what, " given for ",
                tensors, " tensor(s); pass one entry for each, or one for all");
}

template <typename Item>
const Item& entry(const std::vector<Item>& items, std::size_t index) {
  return items[items.size() == 1 ? 0 : index];
}

/// Where a tensor goes; checked.
detail::Destination destination_of(std::size_t index, const at::Tensor& tensor,
                                   const DeviceMesh& mesh, const Placements& placements) {
  try {
    const auto& meta = detail::checked_meta(tensor, "redistribute");
    detail::check_destination("redistribute", meta, mesh);
    return {mesh, detail::checked_layout("redistribute", mesh, placements, meta.layout().shape())};
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(kName, ": tensor ", index, ": ", error.what()));
  }
}

}  // namespace

std::vector<at::Tensor> redistribute_all(const std::vector<at::Tensor>& tensors,
                                         const std::vector<Placements>& placements,
                                         const RedistributeOptions& options) {
  std::vector<DeviceMesh> meshes;
  meshes.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto* meta = detail::dtensor_meta(tensors[i]);
    TESSERA_CHECK(meta != nullptr, kName, ": tensor ", i, ": ",
                  tensors[i].defined() ? "a plain" : "an undefined",
                  " tensor given, a DTensor is needed; make one with distribute_tensor or "
                  "from_local");
    meshes.push_back(meta->mesh());
  }
  return redistribute_all(tensors, meshes, placements, options);
}

std::vector<at::Tensor> redistribute_all(const std::vector<at::Tensor>& tensors,
                                         const std::vector<DeviceMesh>& meshes,
                                         const std::vector<Placements>& placements,
                                         const RedistributeOptions& options) {
  if (tensors.empty()) return {};
  check_count("mesh(es)", meshes.size(), tensors.size());
  check_count("list(s) of placements", placements.size(), tensors.size());
  std::vector<detail::Destination> to;
  to.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    to.push_back(destination_of(i, tensors[i], entry(meshes, i), entry(placements, i)));
    TESSERA_CHECK(&to[i].mesh.world().state() == &to[0].mesh.world().state(), kName, ": tensor ", i,
                  " is of another world than tensor 0; call it for the tensors of each by itself");
  }
  return detail::move_all(tensors, to, options);
}

}  // namespace tessera
