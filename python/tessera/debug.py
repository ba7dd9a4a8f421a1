"""Looking at what happens: communication counted, and layouts drawn."""

import json
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from . import _C
from ._C import CommRecord
from ._dtensor import DTensor
from ._module_trace import ModuleTrace, Place
from .errors import InvalidArgument

__all__ = ["CommDebugMode", "CommRecord", "visualize_sharding"]


class CommCounts(dict):
    """Counts by operation, with 0 for what did not occur. An operation is named by its op of
    `torch.ops.c10d_functional` as in PyTorch, or by its name: `counts["all_reduce"]`."""

    def __missing__(self, key) -> int:
        if isinstance(key, str):
            return next((count for op, count in self.items() if _name_of(op) == key), 0)
        return next((count for op, count in self.items() if _name_of(op) == _name_of(key)), 0)


def _name_of(op) -> str:
    return op if isinstance(op, str) else op.__name__.rsplit(".")[-1]


def _op_of(name: str):
    return getattr(torch.ops.c10d_functional, name, name) if name in _PYTORCH_OPS else name


_PYTORCH_OPS = frozenset(("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor",
                          "all_to_all_single", "broadcast", "all_reduce_coalesced",
                          "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"))


class CommDebugMode:
    """Counts the communication of the calling thread while it is entered.

        with CommDebugMode() as comm_mode:
            model(x).sum().backward()
        comm_mode.get_total_counts(), comm_mode.get_comm_counts(), print(comm_mode)

    Entering it anew forgets what was counted before. Each rank has its own; `gathered` collects those of
    all. It also knows which module communicated: `generate_comm_debug_tracing_table`.
    """

    def __init__(self) -> None:
        self._recording = _C.Recording()
        self._trace = ModuleTrace(self._recording.total_count)

    def __enter__(self) -> "CommDebugMode":
        self._recording.clear()
        self._trace = ModuleTrace(self._recording.total_count)
        self._trace.start()
        self._recording.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._recording.exit()
        self._trace.stop()

    def get_total_counts(self) -> int:
        """How many communications there were."""
        return self._recording.total_count()

    def get_comm_counts(self) -> CommCounts:
        """How many there were of each operation."""
        return CommCounts({_op_of(name): count for name, count in self._recording.counts().items()})

    @property
    def records(self) -> List[CommRecord]:
        """Every communication with its group, cause, bytes and time."""
        return self._recording.records()

    @property
    def received_bytes(self) -> int:
        """How many bytes this rank received in all."""
        return self._recording.received_bytes()

    @property
    def sent_bytes(self) -> int:
        """How many bytes this rank sent in all."""
        return self._recording.sent_bytes()

    def gathered(self, group) -> List[CommRecord]:
        """The records of all members of a group, which all must call it; for `table`, `json` and
        `chrome_trace`."""
        from .functional_collectives import _resolve

        return self._recording.gathered(_resolve(group))

    def table(self, records: Optional[Sequence[CommRecord]] = None) -> str:
        """What `print` shows: name, group, cause, count, bytes and time. Of these records, or of its own.
        Those of several ranks are added up, and a second table has a line for each rank."""
        return _C.traffic_table(self.records if records is None else records)

    def json(self, records: Optional[Sequence[CommRecord]] = None) -> str:
        """The same as JSON: `collectives` and `total` of all records, and in `ranks` those of each."""
        return _C.traffic_json(self.records if records is None else records)

    def chrome_trace(self, records: Optional[Sequence[CommRecord]] = None) -> str:
        """The records as a trace that Perfetto and chrome://tracing open, a process for each rank."""
        return _C.chrome_trace(self.records if records is None else records)

    def get_parameter_info(self) -> Dict[str, Dict[str, torch.Tensor]]:
        """The parameters of the modules that were called: by the module's name, then by their own."""
        return self._trace.parameters

    def get_sharding_info(self) -> Dict[str, Tuple[Any, ...]]:
        """The placements of their parameters that are DTensors, by name."""
        return self._trace.placements

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """Says which module communicated what, forth and back.

        Args:
            noise_level: 0 shows what each module sent; from 1 on also why: the operation or the
                redistribution that it was for.
        """
        lines = [("module", "pass", "operation", "count", "received", *(["for"] if noise_level else []))]
        for (place, name, cause), records in self._by_place(noise_level).items():
            received = sum(record.received_bytes for record in records)
            row = (place.name, place.phase, name, str(len(records)), f"{received} B")
            lines.append((*row, cause) if noise_level else row)
        widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]))]
        return "".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n"
                       for row in lines)

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt",
                                             noise_level: int = 3) -> None:
        """Appends that table to a file."""
        with open(file_name, "a", encoding="utf-8") as file:
            file.write(self.generate_comm_debug_tracing_table(noise_level))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Writes that table to a file, as a list of objects."""
        rows = [{"module": place.name, "pass": place.phase, "operation": name, "count": len(records),
                 "received_bytes": sum(record.received_bytes for record in records),
                 "sent_bytes": sum(record.sent_bytes for record in records),
                 **({"for": cause} if noise_level else {})}
                for (place, name, cause), records in self._by_place(noise_level).items()]
        with open(file_name, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)

    def _by_place(self, noise_level: int) -> Dict[Tuple[Place, str, str], List[CommRecord]]:
        """The records in the order of their places, and together where all is alike."""
        records = self.records
        result: Dict[Tuple[Place, str, str], List[CommRecord]] = {}
        for record, place in zip(records, self._trace.places(len(records))):
            key = (place, record.name, record.cause if noise_level else "")
            result.setdefault(key, []).append(record)
        return result

    def __str__(self) -> str:
        return self.table()


def visualize_sharding(dtensor: DTensor, header: str = "", use_rich: bool = False) -> None:
    """Prints who owns what of a DTensor, on the first rank of its mesh.

    Args:
        header: a line to print first.
        use_rich: paint every rank's cells in its colour.
    """
    if not _C.is_dtensor(dtensor):
        raise InvalidArgument("visualize_sharding: a plain tensor given, a DTensor is needed; make one "
                              "with tessera.distribute_tensor")
    if dtensor.numel() == 0:
        return
    coordinate = dtensor.device_mesh.get_coordinate()
    if coordinate is None or any(coordinate):
        return
    if header:
        print(header)
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    print(_C.picture(dtensor, not encoding.lower().startswith("utf"), use_rich), end="")
