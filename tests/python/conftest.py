"""What the tests of the Python package share."""

import pytest
import torch

import tessera

torch.set_num_threads(1)


@pytest.fixture(params=[1, 2, 3, 4], ids=lambda ranks: f"{ranks}ranks")
def ranks(request):
    """A number of ranks, as threads."""
    return request.param


@pytest.fixture
def on_ranks(ranks):
    """Runs fn(mesh) on that many ranks, with a mesh of one dim, and returns what they return."""

    def run(fn):
        return tessera.run_ranks(
            ranks, lambda rank: fn(tessera.init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))),
            timeout=30)

    return run
