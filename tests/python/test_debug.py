"""What is counted of communication, and which module it was for."""

import json
import threading

import pytest
import torch
from torch import nn

import tessera
from tessera import Replicate, Shard, distribute_tensor
from tessera.debug import CommDebugMode, visualize_sharding
from tessera.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def test_traffic_says_what_it_was_for(on_ranks):
    def check(mesh):
        x = distribute_tensor(torch.ones(12, 4), mesh, [Shard(0)])
        with CommDebugMode() as counted:
            x.redistribute(placements=[Replicate()])
        if mesh.size() == 1:
            assert counted.get_total_counts() == 0
            return
        assert counted.get_total_counts() == 1
        assert counted.received_bytes == 12 * 4 * 4 * (mesh.size() - 1) // mesh.size()
        assert "redistribute" in counted.records[0].cause
        assert counted.records[0].name in str(counted)
        assert counted.records[0].rank == mesh.get_rank() and counted.records[0].seconds > 0
        assert repr(counted.records[0]).startswith("CommRecord(all_gather_into_tensor on ")
        assert len(json.loads(counted.json())) >= 1 and json.loads(counted.chrome_trace())
        everybodys = counted.gathered(mesh)
        assert {record.rank for record in everybodys} == set(range(mesh.size()))
        # The sums, then a line for each rank.
        assert counted.table() == str(counted) and "\n\n" not in str(counted)
        ranks = counted.table(everybodys).split("\n\n")[1].splitlines()
        assert ranks[0].split() == ["rank", "count", "sent", "received", "time", "calls"]
        assert [line.split()[:2] for line in ranks[1:]] == [[str(i), "1"] for i in range(mesh.size())]
        assert all(line.endswith(" 1 all_gather_into_tensor") for line in ranks[1:])
        summed = json.loads(counted.json(everybodys))
        assert summed["total"]["count"] == mesh.size()
        assert [(rank["rank"], rank["received_bytes"]) for rank in summed["ranks"]] == [
            (i, counted.received_bytes) for i in range(mesh.size())]
        assert len(json.loads(counted.chrome_trace(everybodys))["traceEvents"]) == 2 * mesh.size()
        with counted:
            pass
        assert counted.get_total_counts() == 0

    on_ranks(check)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_modules_are_named(tmp_path):
    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        net = parallelize_module(Net(), mesh, {"layers.*.0": ColwiseParallel(),
                                               "layers.*.2": RowwiseParallel()})
        x = torch.ones(3, 6, requires_grad=True)
        with CommDebugMode() as counted:
            loss = net(x).sum()
            loss.backward()
            tessera.functional_collectives.all_reduce(torch.ones(2), "sum", mesh).wait()
        rows = [line.split() for line in counted.generate_comm_debug_tracing_table(0).splitlines()]
        assert rows[0] == ["module", "pass", "operation", "count", "received"]
        # Forth, the sum of the contributions; back, that of the input's gradients.
        assert [(*row[:2], row[3]) for row in rows[1:]] == [
            ("Net.layers.0.2", "forward", "1"), ("Net.layers.1.2", "forward", "1"),
            ("Net.layers.1.0", "backward", "1"), ("Net.layers.0.0", "backward", "1"),
            ("Global", "forward", "1")]
        assert rows[-1][2:] == ["all_reduce", "1", "8", "B"]
        table = counted.generate_comm_debug_tracing_table()
        assert "redistribute" in table and table.splitlines()[0].endswith("for")
        assert counted.get_sharding_info()["Net.layers.0.0.weight"] == (Shard(0),)
        assert set(counted.get_parameter_info()["Net.layers.1.2"]) == {"weight", "bias"}
        names = [tmp_path / f"{rank}.{kind}" for kind in ("txt", "json")]
        counted.log_comm_debug_tracing_table_to_file(str(names[0]))
        assert names[0].read_text() == table
        counted.generate_json_dump(str(names[1]))
        shown = json.loads(names[1].read_text())
        assert [row["module"] for row in shown] == [row[0] for row in rows[1:]]
        assert shown[0]["received_bytes"] == counted.records[0].received_bytes
        # The hooks are gone.
        assert not any(len(module._forward_hooks) > 1 for module in net.modules())

    tessera.run_ranks(2, check)


def test_a_module_that_raises_is_left(on_ranks):
    class Failing(nn.Module):
        def forward(self, x):
            raise LookupError("mine")

    def check(mesh):
        with CommDebugMode() as counted:
            with pytest.raises(LookupError):
                nn.Sequential(nn.Identity(), Failing())(torch.ones(2))
            tessera.functional_collectives.all_reduce(torch.ones(2), "sum", mesh).wait()
        assert counted.generate_comm_debug_tracing_table(0).splitlines()[1].startswith("Global ")

    on_ranks(check)


def test_every_rank_counts_its_own():
    entered = threading.Barrier(2)

    def check(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        with CommDebugMode() as counted:
            entered.wait(timeout=30)
            for _ in range(rank):
                nn.Linear(2, 2)(torch.ones(1, 2))
            entered.wait(timeout=30)
        tessera.functional_collectives.barrier(mesh)
        assert len(counted.get_parameter_info()) == rank

    tessera.run_ranks(2, check)


def test_pictures(capsys):
    def draw(rank):
        mesh = tessera.init_device_mesh("cpu", (2,))
        visualize_sharding(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]), header="rows")
        visualize_sharding(distribute_tensor(torch.ones(0, 4), mesh, [Shard(0)]), header="nothing")
        with pytest.raises(ValueError, match="a DTensor is needed"):
            visualize_sharding(torch.ones(2))

    tessera.run_ranks(2, draw)
    shown = capsys.readouterr().out
    assert shown.startswith("rows\n[4,4][S(0)] on [2]") and shown.count("rows") == 1
    assert "nothing" not in shown
