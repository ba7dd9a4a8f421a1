#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/python/bindings.h"
#include "tessera/python/placement_cast.h"
#include "tessera/python/scalar_cast.h"
#include "tessera/python/spec_cast.h"
#include "tessera/sharded/factories.h"
#include "tessera/sharded/process_group.h"
#include "tessera/sharded/sharded_tensor.h"

namespace tessera::python {
namespace {

using sharded::ChunkShardingSpec;
using sharded::EnumerableShardingSpec;
using sharded::LoadWithProcessGroup;
using sharded::LocalShard;
using sharded::RankDevice;
using sharded::ShardedTensor;
using sharded::ShardedTensorMetadata;
using sharded::ShardingSpec;
using sharded::ShardMetadata;
using sharded::TensorProperties;
using Sizes = std::vector<std::int64_t>;

/// Raises the class of that name in tessera/errors.py.
[[noreturn]] void raise(const char* name, const std::string& text) {
  const auto kind = py::module_::import("tessera.errors").attr(name);
  PyErr_SetString(kind.ptr(), text.c_str());
  throw py::error_already_set();
}

/// A placement of ours, its text, or torch's object, which prints as its text.
RankDevice rank_device_from(py::handle object) {
  if (py::isinstance<RankDevice>(object)) return object.cast<RankDevice>();
  if (!py::isinstance<py::str>(object) && !py::hasattr(object, "worker_name")) {
    raise("WrongKind",
          concat("Invalid type for remote_device: ", std::string(py::str(py::type::of(object))),
                 "; give a text such as rank:1/cpu"));
  }
  return RankDevice(std::string_view(std::string(py::str(object))));
}

std::int64_t sharding_dim_from(py::handle dim) {
  if (py::isinstance<py::str>(dim)) {
    raise("NotSupported", "ChunkShardingSpec does not support named dimension yet!");
  }
  if (PyLong_Check(dim.ptr()) == 0 || PyBool_Check(dim.ptr()) != 0) {
    raise("InvalidArgument",
          concat("Sharding dim needs to be an integer, found: ", std::string(py::str(dim))));
  }
  return dim.cast<std::int64_t>();
}

ChunkShardingSpec chunk_spec(py::handle dim, const py::iterable& placements) {
  const std::int64_t along = sharding_dim_from(dim);
  std::vector<RankDevice> places;
  for (const auto placement : placements) places.push_back(rank_device_from(placement));
  return {along, std::move(places)};
}

/// Values that compare, hash by what they print, and print like that.
template <typename T>
py::class_<T> bind_value(py::module_& module, const char* name, const char* text) {
  return py::class_<T>(module, name, text)
      .def("__eq__",
           [](const T& self, py::handle other) {
             return py::isinstance<T>(other) && self == other.cast<const T&>();
           })
      .def("__hash__", [](const T& self) { return std::hash<std::string>{}(concat(self)); })
      .def("__repr__", [](const T& self) { return concat(self); });
}

void bind_shards(py::module_& module) {
  bind_value<RankDevice>(module, "RankDevice", "A rank and a device of it, written rank:1/cpu.")
      .def(py::init(&rank_device_from), py::arg("remote_device"))
      .def(
          "rank", [](const RankDevice& self) { return self.rank; }, "The global rank.")
      .def(
          "device", [](const RankDevice& self) { return at::Device(self.device); },
          "The device there.")
      .def(
          "worker_name", [](const RankDevice&) { return py::none(); },
          "Always None: ranks have no names.");
  bind_value<ShardMetadata>(module, "ShardMetadata",
                            "Which box of a tensor one shard is, and where it lives.")
      .def(py::init([](Sizes offsets, Sizes sizes, py::handle placement) {
             return ShardMetadata(std::move(offsets), std::move(sizes),
                                  rank_device_from(placement));
           }),
           py::arg("shard_offsets"), py::arg("shard_sizes"), py::arg("placement"))
      .def_readonly("shard_offsets", &ShardMetadata::offsets, "The first index along each dim.")
      .def_readonly("shard_sizes", &ShardMetadata::sizes, "How many indices along each dim.")
      .def_readonly("placement", &ShardMetadata::placement, "Where it lives.");
}

void bind_metadata(py::module_& module) {
  bind_value<TensorProperties>(module, "TensorProperties",
                               "What all shards of a tensor have in common.")
      .def(py::init(
               [](at::ScalarType dtype, at::Layout layout, bool requires_grad, bool pin_memory) {
                 return TensorProperties{dtype, layout, requires_grad, pin_memory};
               }),
           py::arg("dtype") = at::kFloat, py::arg("layout") = at::kStrided,
           py::arg("requires_grad") = false, py::arg("pin_memory") = false)
      .def_readonly("dtype", &TensorProperties::dtype, "The dtype of every shard.")
      .def_readonly("layout", &TensorProperties::layout, "torch.strided.")
      .def_readonly("requires_grad", &TensorProperties::requires_grad, "Whether every shard does.")
      .def_readonly("pin_memory", &TensorProperties::pin_memory, "Whether every shard is pinned.")
      .def_property_readonly(
          "memory_format", [](const TensorProperties&) { return at::MemoryFormat::Contiguous; },
          "torch.contiguous_format.");
  bind_value<ShardedTensorMetadata>(module, "ShardedTensorMetadata",
                                    "A sharded tensor without its values.")
      .def_readonly("shards_metadata", &ShardedTensorMetadata::shards,
                    "The shards of all ranks, in the order of the spec.")
      .def_property_readonly(
          "size",
          [](const ShardedTensorMetadata& self) {
            return py::module_::import("torch").attr("Size")(self.size);
          },
          "The shape of the whole tensor.")
      .def_readonly("tensor_properties", &ShardedTensorMetadata::properties,
                    "What all shards have in common.");
}

constexpr const char* kBuildMetadata =
    "The shards of a tensor of these sizes. An error where the spec does not fit them.";

template <typename Spec>
auto metadata_builder() {
  return [](const Spec& spec, const Sizes& sizes, const TensorProperties& properties) {
    return ShardedTensorMetadata{build_metadata(spec, sizes), sizes, properties};
  };
}

void bind_specs(py::module_& module) {
  bind_value<ChunkShardingSpec>(module, "ChunkShardingSpec",
                                "One dim cut into chunks; chunk i lives at placements[i].")
      .def(py::init(&chunk_spec), py::arg("dim"), py::arg("placements"))
      .def_property_readonly("dim", &ChunkShardingSpec::dim,
                             "The dim that is cut, as it was given.")
      .def_property_readonly("placements", &ChunkShardingSpec::placements,
                             "Where the chunks live, in order.")
      .def("build_metadata", metadata_builder<ChunkShardingSpec>(), kBuildMetadata,
           py::arg("tensor_sizes"), py::arg("tensor_properties") = TensorProperties());
  bind_value<EnumerableShardingSpec>(module, "EnumerableShardingSpec",
                                     "Every shard spelled out: boxes that tile the tensor.")
      .def(py::init<std::vector<ShardMetadata>>(), py::arg("shards"))
      .def_property_readonly("shards", &EnumerableShardingSpec::shards,
                             "The shards, as they were given.")
      .def("build_metadata", metadata_builder<EnumerableShardingSpec>(), kBuildMetadata,
           py::arg("tensor_sizes"), py::arg("tensor_properties") = TensorProperties());
}

using LocalShards = std::vector<std::pair<at::Tensor, ShardMetadata>>;

LocalShards shards_of(const ShardedTensor& tensor) {
  LocalShards shards;
  for (const auto& shard : tensor.local_shards()) shards.emplace_back(shard.tensor, shard.metadata);
  return shards;
}

ShardedTensor from_shards(const LocalShards& given, const Sizes& size, const Group& group) {
  std::vector<LocalShard> shards;
  for (const auto& [tensor, metadata] : given) shards.push_back({tensor, metadata});
  const py::gil_scoped_release no_gil;
  return sharded::init_from_local_shards(shards, size, group);
}

std::optional<at::Tensor> gather_on(const ShardedTensor& self, std::int64_t dst,
                                    const std::optional<at::Tensor>& out) {
  const py::gil_scoped_release no_gil;
  auto whole = self.gather(dst, out.value_or(at::Tensor()));
  return whole.defined() ? std::make_optional(std::move(whole)) : std::nullopt;
}

at::Tensor moved_to_dtensor(const ShardedTensor& self, const DeviceMesh& mesh,
                            py::handle placements) {
  const Placements wanted = placements_from(placements);
  const py::gil_scoped_release no_gil;
  return self.to_dtensor(mesh, wanted);
}

void bind_tensor(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  // The class that users see is in tessera/sharded.py.
  py::class_<ShardedTensor>(module, "ShardedTensorHandle")
      .def("sharding_spec", &ShardedTensor::sharding_spec)
      .def("metadata", &ShardedTensor::metadata)
      .def("group", &ShardedTensor::group)
      .def("local_shards", &shards_of)
      .def("local_tensor", &ShardedTensor::local_tensor)
      .def("gather", &gather_on)
      .def("reshard", &ShardedTensor::reshard, without_gil)
      .def("to_dtensor", py::overload_cast<>(&ShardedTensor::to_dtensor, py::const_))
      .def("move_to_dtensor", &moved_to_dtensor)
      .def("to_bytes", [](const ShardedTensor& self) { return py::bytes(to_bytes(self)); })
      .def("__repr__", [](const ShardedTensor& self) { return concat(self); });
  module.def("shard_tensor", &sharded::shard_tensor, without_gil);
  module.def("init_from_local_shards", &from_shards);
  module.def(
      "sharded_from_dtensor",
      [](const at::Tensor& tensor, const std::optional<ShardingSpec>& spec, const Group& group) {
        const py::gil_scoped_release no_gil;
        return spec ? sharded::from_dtensor(tensor, *spec, group)
                    : sharded::from_dtensor(tensor, group);
      });
  module.def("load_sharded_tensor", [](const std::string& bytes, const Group& group) {
    const py::gil_scoped_release no_gil;
    return sharded::load_sharded_tensor(bytes, group);
  });
}

using Factory = ShardedTensor (*)(const ShardingSpec&, const Sizes&, const at::TensorOptions&,
                                  const std::optional<Group>&);

void bind_sharded_factory(py::module_& module, const char* name, Factory factory) {
  module.def(
      name, [factory](const ShardingSpec& spec, const Sizes& sizes,
                      std::optional<at::ScalarType> dtype, bool requires_grad, const Group& group) {
        const py::gil_scoped_release no_gil;
        return factory(spec, sizes, options_of(dtype, requires_grad), group);
      });
}

void bind_sharded_factories(py::module_& module) {
  bind_sharded_factory(module, "sharded_zeros", &sharded::zeros);
  bind_sharded_factory(module, "sharded_ones", &sharded::ones);
  bind_sharded_factory(module, "sharded_empty", &sharded::empty);
  bind_sharded_factory(module, "sharded_rand", &sharded::rand);
  bind_sharded_factory(module, "sharded_randn", &sharded::randn);
  module.def("sharded_full",
             [](const ShardingSpec& spec, const Sizes& sizes, py::handle number,
                std::optional<at::ScalarType> dtype, bool requires_grad, const Group& group) {
               const at::Scalar value = scalar_from(number);
               const py::gil_scoped_release no_gil;
               return sharded::full(spec, sizes, value, options_of(dtype, requires_grad), group);
             });
}

/// A `with` block: the guard lives from `enter` to `exit`.
struct ProcessGroupScope {
  Group group;
  std::unique_ptr<LoadWithProcessGroup> guard;
};

}  // namespace

void bind_sharded(py::module_& module) {
  bind_shards(module);
  bind_metadata(module);
  bind_specs(module);
  bind_tensor(module);
  bind_sharded_factories(module);
  py::class_<ProcessGroupScope>(module, "ProcessGroupScope")
      .def(py::init([](const Group& group) {
        return ProcessGroupScope{group, nullptr};
      }))
      .def("enter",
           [](ProcessGroupScope& self) {
             self.guard = std::make_unique<LoadWithProcessGroup>(self.group);
           })
      .def("exit", [](ProcessGroupScope& self) { self.guard.reset(); });
  module.def("current_process_group", &sharded::current_process_group);
}

}  // namespace tessera::python
