#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "tessera/comm/group.h"
#include "tessera/comm/world.h"
#include "tessera/layout/mesh_shape.h"

namespace c10d {
class ProcessGroup;
}

namespace tessera {

/// A mesh of ranks that can communicate: a `MeshShape` bound to a world and a kind of device.
///
/// A handle: cheap to copy. Making a mesh communicates nothing; its groups are made when first used,
/// and meshes that need the same ranks share them. A mesh may cover only some ranks of the world;
/// the others may hold it too, have no coordinate in it, own nothing and skip its traffic.
class DeviceMesh {
 public:
  /// The mesh of `shape` on the calling rank's world. `device_type` is `"cpu"`, `"cuda"`, ..., without
  /// an index. Throws `InvalidArgument` when the mesh needs ranks that the world does not have.
  DeviceMesh(std::string device_type, MeshShape shape);
  /// The same on another world, e.g. an adopted one.
  DeviceMesh(std::string device_type, MeshShape shape, World world);

  /// The one-dimensional mesh of a group's members; `name` may be empty.
  [[nodiscard]] static DeviceMesh from_group(const Group& group, std::string device_type,
                                             std::string name = {});
  /// The one-dimensional mesh of the members of a process group that the program has already, whatever
  /// its backend, in the group's order:
  ///
  ///     DeviceMesh mesh = DeviceMesh::from_group(process_group, "cpu", "dp");
  ///
  /// Short for `adopt` of `tessera/comm/c10d.h` and the mesh of all ranks of the world that it returns.
  /// Ranks are the places in the process group: 0 is its first member. The mesh keeps that world alive,
  /// and the world the process group's backend; `mesh.world()` is it, to be passed where there is no
  /// mesh, since it does not become `World::current()`.
  ///
  /// All members must call it. It communicates, as `adopt` does: a few hundred bytes per rank. Every
  /// call makes a world of its own, and meshes of different worlds are not equal. For several meshes on
  /// the same ranks, or meshes that need groups of some of them (`unflatten`), call `adopt` once, with
  /// the other process groups or a function that makes them, and make the meshes of its world.
  ///
  /// Throws `InvalidArgument` for a process group that is null or has no backend and for a device type
  /// with an index, before anything is communicated; `CommError` when the members do not find each
  /// other.
  [[nodiscard]] static DeviceMesh from_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                             std::string device_type, std::string name = {},
                                             const WorldOptions& options = {});

  /// What it was made of.
  [[nodiscard]] const MeshShape& shape() const;
  [[nodiscard]] const std::string& device_type() const;
  [[nodiscard]] const World& world() const;
  [[nodiscard]] std::int64_t ndim() const { return shape().ndim(); }
  /// Number of ranks in all, or along a dim.
  [[nodiscard]] std::int64_t size() const { return shape().num_ranks(); }
  [[nodiscard]] std::int64_t size(std::int64_t dim) const { return shape().size(dim); }
  [[nodiscard]] std::int64_t size(std::string_view name) const;

  /// This rank's coordinate; nothing when it is outside of the mesh.
  [[nodiscard]] std::optional<Coordinate> coordinate() const;
  /// This rank's index along a dim. The dim may be left out of a mesh that has only one. Throws
  /// `InvalidArgument` outside of the mesh and for a dim that does not exist.
  [[nodiscard]] std::int64_t local_rank(std::optional<std::int64_t> dim = {}) const;
  [[nodiscard]] std::int64_t local_rank(std::string_view name) const;

  /// The group of all ranks of the mesh; of the ranks along one dim through this rank; along several
  /// dims, numbered with the last one fastest. Throws `InvalidArgument` outside of the mesh.
  [[nodiscard]] Group group() const;
  [[nodiscard]] Group group(std::int64_t dim) const;
  [[nodiscard]] Group group(std::string_view name) const;
  [[nodiscard]] Group group(std::span<const std::int64_t> dims) const;
  /// One group per dim.
  [[nodiscard]] std::vector<Group> all_groups() const;
  /// The same as `group()`, so that a mesh can be passed where a group is wanted.
  operator Group() const { return group(); }  // NOLINT(google-explicit-constructor)

  /// The sub-mesh with the named dims through this rank. Throws `InvalidArgument` for names that do
  /// not exist, and outside of the mesh. Its group has the name of the dim.
  [[nodiscard]] DeviceMesh operator[](std::string_view name) const;
  [[nodiscard]] DeviceMesh slice(const std::vector<std::string>& names) const;
  /// All ranks in one dim, called `name`.
  [[nodiscard]] DeviceMesh flatten(std::string name = {}) const;
  /// One dim as several; see `MeshShape::unflatten`.
  [[nodiscard]] DeviceMesh unflatten(std::int64_t dim, const std::vector<std::int64_t>& sizes,
                                     const std::vector<std::string>& names = {}) const;

  /// Equal shapes, device types and worlds. Copies of one mesh are compared by a pointer, others
  /// by their hashes first.
  bool operator==(const DeviceMesh& other) const {
    return state_ == other.state_ || has_same_contents(other);
  }
  [[nodiscard]] std::size_t hash() const;

  /// `DeviceMesh([dp=2, tp=2], cpu)`.
  [[nodiscard]] std::string to_string() const;

 private:
  static void check_device_type(const std::string& device_type);
  [[nodiscard]] bool has_same_contents(const DeviceMesh& other) const;

  struct State;
  std::shared_ptr<const State> state_;
};

std::ostream& operator<<(std::ostream& os, const DeviceMesh& mesh);

/// Returns the mesh of the world's ranks 0, 1, 2, ... in row-major order.
///
/// Throws `InvalidArgument` for sizes below 1, names that are not one per dim and different, a device
/// type with an index (`cuda:0`), and more ranks than the world has.
[[nodiscard]] DeviceMesh init_device_mesh(const std::string& device_type,
                                          const std::vector<std::int64_t>& sizes,
                                          const std::vector<std::string>& names = {});

}  // namespace tessera

template <>
struct std::hash<tessera::DeviceMesh> {
  std::size_t operator()(const tessera::DeviceMesh& mesh) const noexcept { return mesh.hash(); }
};
