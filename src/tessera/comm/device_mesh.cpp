#include "tessera/comm/device_mesh.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <ostream>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"

namespace tessera {

struct DeviceMesh::State {
  State(std::string type, MeshShape mesh_shape, World its_world)
      : device_type(std::move(type)),
        shape(std::move(mesh_shape)),
        world(std::move(its_world)),
        coordinate(shape.coordinate_of(world.rank())),
        hash(hash_combine(hash_combine(shape.hash(), std::hash<std::string>{}(device_type)),
                          std::hash<const void*>{}(&world.state()))) {}

  std::string device_type;
  MeshShape shape;
  World world;
  std::optional<Coordinate> coordinate;
  std::size_t hash;

  /// The groups that were asked for, by their dims; few, so a list. All else never changes: a mesh
  /// belongs to one rank, but the threads of a backward pass may use it too.
  struct KnownGroup {
    std::vector<std::int64_t> dims;
    Group group;
  };
  mutable std::mutex mutex;
  mutable std::vector<KnownGroup> groups;
  mutable std::optional<Group> whole;

  /// Returns the group of `dims`, made by make() when it is first asked for.
  template <typename Make>
  Group find_or_make(std::span<const std::int64_t> dims, Make make) const {
    const std::lock_guard lock(mutex);
    for (const auto& known : groups) {
      if (std::equal(known.dims.begin(), known.dims.end(), dims.begin(), dims.end())) {
        return known.group;
      }
    }
    return groups.emplace_back(KnownGroup{{dims.begin(), dims.end()}, make()}).group;
  }
};

void DeviceMesh::check_device_type(const std::string& device_type) {
  TESSERA_CHECK(!device_type.empty() && device_type.find(':') == std::string::npos,
                "DeviceMesh: device type \"", device_type,
                "\" given; Device type with index is not supported: pass the type alone, such as "
                "cpu or cuda");
}

DeviceMesh::DeviceMesh(std::string device_type, MeshShape shape)
    : DeviceMesh(std::move(device_type), std::move(shape), World::current()) {}

DeviceMesh::DeviceMesh(std::string device_type, MeshShape shape, World world) {
  check_device_type(device_type);
  TESSERA_CHECK(shape.max_rank() < world.size(), "DeviceMesh: mesh ", shape, " needs rank ",
                shape.max_rank(), ", but the world has ranks 0 to ", world.size() - 1,
                "; Mesh should not be bigger than default world size: start more ranks or make it "
                "smaller");
  state_ =
      std::make_shared<const State>(std::move(device_type), std::move(shape), std::move(world));
}

DeviceMesh DeviceMesh::from_group(const Group& group, std::string device_type, std::string name) {
  std::vector<std::string> names;
  if (!name.empty()) names.push_back(std::move(name));
  return DeviceMesh(std::move(device_type),
                    MeshShape({group.size()}, std::move(names), group.ranks()), group.world());
}

const MeshShape& DeviceMesh::shape() const { return state_->shape; }

const std::string& DeviceMesh::device_type() const { return state_->device_type; }

const World& DeviceMesh::world() const { return state_->world; }

std::int64_t DeviceMesh::size(std::string_view name) const { return size(shape().dim_named(name)); }

std::optional<Coordinate> DeviceMesh::coordinate() const { return state_->coordinate; }

std::int64_t DeviceMesh::local_rank(std::optional<std::int64_t> dim) const {
  TESSERA_CHECK(dim || ndim() == 1, "DeviceMesh::local_rank: no dim given for ", *this,
                "; `mesh_dim` needs to be specified when device_mesh.ndim > 1");
  const std::int64_t along = dim.value_or(0);
  TESSERA_CHECK(along >= 0 && along < ndim(), "DeviceMesh::local_rank: mesh dim ", along,
                " given; ", *this, " has ", ndim(), " dim(s), numbered from 0");
  const auto& here = state_->coordinate;
  TESSERA_CHECK(here.has_value(), "DeviceMesh::local_rank: rank ", world().rank(), " is not in ",
                *this, "; ask coordinate() first");
  return (*here)[static_cast<std::size_t>(along)];
}

std::int64_t DeviceMesh::local_rank(std::string_view name) const {
  return local_rank(shape().dim_named(name));
}

Group DeviceMesh::group() const {
  const std::lock_guard lock(state_->mutex);
  // Named after its dims, so that mesh["tp"] is called tp.
  if (!state_->whole) state_->whole = world().group(shape().ranks(), joined(shape().names(), ","));
  return *state_->whole;
}

Group DeviceMesh::group(std::int64_t dim) const { return group(std::span(&dim, 1)); }

Group DeviceMesh::group(std::string_view name) const { return group(shape().dim_named(name)); }

Group DeviceMesh::group(std::span<const std::int64_t> dims) const {
  return state_->find_or_make(dims, [&] {
    const MeshShape along = shape().slice_dims(dims, world().rank());
    std::vector<std::string> labels;
    for (const auto dim : dims) labels.push_back(shape().dim_label(dim));
    return world().group(along.ranks(), shape().names().empty() ? "" : joined(labels, ","));
  });
}

std::vector<Group> DeviceMesh::all_groups() const {
  std::vector<Group> groups;
  for (std::int64_t dim = 0; dim < ndim(); ++dim) groups.push_back(group(dim));
  return groups;
}

DeviceMesh DeviceMesh::operator[](std::string_view name) const {
  return slice({std::string(name)});
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& names) const {
  TESSERA_CHECK(
      !shape().names().empty(), "DeviceMesh::slice: ", *this,
      " has no names; Cannot slice a DeviceMesh without mesh_dim_names: give them when it "
      "is made");
  return DeviceMesh(device_type(), shape().slice(names, world().rank()), world());
}

DeviceMesh DeviceMesh::flatten(std::string name) const {
  return DeviceMesh(device_type(), shape().flatten(std::move(name)), world());
}

DeviceMesh DeviceMesh::unflatten(std::int64_t dim, const std::vector<std::int64_t>& sizes,
                                 const std::vector<std::string>& names) const {
  return DeviceMesh(device_type(), shape().unflatten(dim, sizes, names), world());
}

bool DeviceMesh::has_same_contents(const DeviceMesh& other) const {
  return state_->hash == other.state_->hash && &world().state() == &other.world().state() &&
         shape() == other.shape() && device_type() == other.device_type();
}

std::size_t DeviceMesh::hash() const { return state_->hash; }

std::string DeviceMesh::to_string() const {
  return concat("DeviceMesh(", shape(), ", ", device_type(), ')');
}

std::ostream& operator<<(std::ostream& os, const DeviceMesh& mesh) {
  return os << mesh.to_string();
}

DeviceMesh init_device_mesh(const std::string& device_type, const std::vector<std::int64_t>& sizes,
                            const std::vector<std::string>& names) {
  return DeviceMesh(device_type, MeshShape(sizes, names));
}

}  // namespace tessera
