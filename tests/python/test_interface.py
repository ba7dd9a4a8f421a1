"""The public face: names and arguments are PyTorch's, everything is documented and typed."""

import ast
import inspect
import pathlib
import typing

import pytest
import torch.distributed._functional_collectives as their_collectives
import torch.distributed.device_mesh as their_mesh
import torch.distributed.tensor as theirs
import torch.distributed.tensor.debug as their_debug
import torch.distributed.tensor.experimental as their_experimental
import torch.distributed.tensor.parallel as their_parallel

import tessera
from tessera import _C, debug, experimental, functional_collectives, parallel, sharded

MODULES = [tessera, debug, experimental, functional_collectives, parallel, tessera.errors,
           tessera.device_mesh, tessera.factories, tessera.placement_types, sharded]

# What we leave out, and why.
PRIVATE = {"_init_backend", "_rank", "_layout", "_rank_map", "_root_mesh"}  # Of their implementation.

FUNCTIONS = [
    *[(getattr(tessera, name), getattr(theirs, name)) for name in (
        "distribute_tensor", "distribute_module", "ones", "empty", "full", "rand", "randn", "zeros")],
    (tessera.init_device_mesh, their_mesh.init_device_mesh),
    (parallel.parallelize_module, their_parallel.parallelize_module),
    (experimental.local_map, their_experimental.local_map),
    (debug.visualize_sharding, their_debug.visualize_sharding),
    *[(getattr(parallel, name), getattr(their_parallel, name)) for name in (
        "ColwiseParallel", "RowwiseParallel", "SequenceParallel", "PrepareModuleInput",
        "PrepareModuleOutput", "PrepareModuleInputOutput")],
    *[(getattr(tessera.DTensor, name), getattr(theirs.DTensor, name)) for name in (
        "from_local", "to_local", "full_tensor", "redistribute")],
    *[(getattr(tessera.DeviceMesh, name), getattr(their_mesh.DeviceMesh, name)) for name in (
        "__init__", "size", "get_group", "get_all_groups", "get_rank", "get_local_rank",
        "get_coordinate", "__getitem__", "_flatten", "_unflatten", "from_group")],
    *[(getattr(debug.CommDebugMode, name), getattr(their_debug.CommDebugMode, name)) for name in (
        "get_total_counts", "get_comm_counts", "generate_comm_debug_tracing_table",
        "generate_json_dump", "log_comm_debug_tracing_table_to_file", "get_parameter_info",
        "get_sharding_info")],
    *[(getattr(functional_collectives, name), getattr(their_collectives, name)) for name in (
        "all_gather_into_tensor_coalesced", "all_gather_single", "all_gather_single_autograd",
        "all_gather_single_coalesced", "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce",
        "all_reduce_coalesced", "all_to_all_single", "all_to_all_single_autograd", "broadcast",
        "permute_tensor", "reduce_scatter_single", "reduce_scatter_single_autograd",
        "reduce_scatter_single_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
        "reduce_scatter_tensor_coalesced", "wait_tensor")],
]


def arguments_of(function):
    return {name: (p.kind, p.default) for name, p in inspect.signature(function).parameters.items()
            if name not in PRIVATE}


@pytest.mark.parametrize("ours, pytorchs", FUNCTIONS, ids=lambda f: f.__qualname__)
def test_arguments_are_those_of_pytorch(ours, pytorchs):
    mine, wanted = arguments_of(ours), arguments_of(pytorchs)
    if ours.__qualname__.endswith("DeviceMesh.__init__") or ours is _C.DeviceMesh.__init__:
        wanted["mesh"] = mine["mesh"]  # Theirs may be left out by private callers.
    if ours is _C.DeviceMesh._unflatten:
        wanted["mesh_dim_names"] = mine["mesh_dim_names"]  # Ours may be left out of a mesh without names.
    for name, argument in wanted.items():
        assert name in mine, f"{name} is missing"
        assert mine[name] == argument, name
    shared = [name for name in mine if name in wanted]
    positional = [name for name in shared if wanted[name][0] is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == [name for name in wanted
                          if wanted[name][0] is not inspect.Parameter.KEYWORD_ONLY]
    # What is ours alone may be left out.
    for name in set(mine) - set(wanted):
        assert mine[name][0] is inspect.Parameter.KEYWORD_ONLY, name
        assert mine[name][1] is not inspect.Parameter.empty, name


def test_every_name_of_pytorch_is_there():
    for module, others in ((tessera, theirs), (parallel, their_parallel), (debug, their_debug)):
        missing = {name for name in others.__all__ if not hasattr(module, name)}
        assert missing == set(), module.__name__
    assert set(their_experimental.__all__) - set(experimental.__all__) == {
        "context_parallel", "register_sharding"}
    properties = [name for name, value in vars(their_mesh.DeviceMesh).items()
                  if isinstance(value, property) and not name.startswith("_")]
    assert all(hasattr(tessera.DeviceMesh, name) for name in (*properties, "shape", "ndim"))
    for kind in ("Shard", "Replicate", "Partial"):
        public = {name for name in dir(getattr(theirs, kind)) if not name.startswith("_")}
        assert public - set(dir(getattr(tessera, kind))) <= {"ALL_REDUCE_OPS", "LINEAR_REDUCE_OPS"}


def public_objects():
    for module in MODULES:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def public_members(kind):
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, (property, staticmethod))):
            yield name, getattr(kind, name)


def test_everything_is_documented():
    missing = []
    for name, value in public_objects():
        if inspect.ismodule(value) or typing.get_origin(value) is typing.Union:
            continue
        if not (value.__doc__ or "").strip():
            missing.append(name)
        if inspect.isclass(value) and value.__module__.startswith("tessera"):
            missing += [f"{name}.{key}" for key, member in public_members(value)
                        if not (inspect.getdoc(member) or "").strip()]
    assert missing == []
    assert all(module.__doc__ for module in MODULES)


def test_functions_have_types():
    for name, value in public_objects():
        if not inspect.isfunction(value):
            continue
        signature = inspect.signature(value)
        bare = [key for key, p in signature.parameters.items() if p.annotation is inspect.Parameter.empty]
        assert bare == [] and signature.return_annotation is not inspect.Signature.empty, (name, bare)


def stub_of(name):
    path = pathlib.Path(tessera.__file__).with_name(name)
    return ast.parse(path.read_text())


def names_in(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname for alias in node.names if alias.asname)
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


def test_stubs_name_what_is_there():
    stub = stub_of("_C.pyi")
    stated = set(names_in(stub.body))
    there = {name for name in vars(_C) if not name.startswith("__")}
    assert stated == there
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    classes += [node for node in stub_of("placement_types.pyi").body
                if isinstance(node, ast.ClassDef) and node.name != "Placement"]
    for node in classes:
        kind = getattr(_C, node.name)
        there = {name for name in vars(kind) if not name.startswith("_")}
        stated = {name for name in names_in(node.body) if not name.startswith("_")}
        inherited = {"is_replicate", "is_shard", "is_partial"} if hasattr(kind, "is_shard") else set()
        assert there - inherited == stated, node.name
        assert all(hasattr(kind, name) for name in names_in(node.body) if name != "_root")
