"""An ONNX graph opened for alteration: its nodes, its constants, and who reads what.

Works on the proto and on nothing of Vela's, so that what the gate reads by one road was written by another. External
data stays where it is: only references are read and written. Used by every fault that alters a graph.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

MICROSOFT = "com.microsoft"
Use = tuple[onnx.NodeProto, int]


class NotApplicable(Exception):
    """This graph has no place where the fault could lie."""


class Sketch:
    """One graph file. New nodes may be added anywhere: saving puts all into an order in which they can run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.proto = onnx.load(path, load_external_data=False)
        self._added = 0

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    def save(self, *, is_sorted: bool = True) -> None:
        if is_sorted:
            self._sort()
        content = self.proto.SerializeToString()
        self.path.unlink()  # it may be a hard link
        self.path.write_bytes(content)

    def nodes(self, *kinds: str) -> list[onnx.NodeProto]:
        """Give the nodes of some operators, all of them by default, in the file's order."""
        return [node for node in self.graph.node if not kinds or node.op_type in kinds]

    def producer(self, value: str) -> onnx.NodeProto | None:
        return next((node for node in self.graph.node if value in node.output), None)

    def users(self, value: str) -> list[Use]:
        return [(node, index) for node in self.graph.node for index, name in enumerate(node.input) if name == value]

    def is_output(self, value: str) -> bool:
        return any(output.name == value for output in self.graph.output)

    def initializer(self, name: str) -> onnx.TensorProto:
        found = next((tensor for tensor in self.graph.initializer if tensor.name == name), None)
        if found is None:
            raise NotApplicable(f"no initializer {name}")
        return found

    def initializer_names(self, part: str) -> list[str]:
        """Give the names of initializers that contain a text."""
        return [tensor.name for tensor in self.graph.initializer if part in tensor.name]

    def constant(self, name: str) -> NDArray[Any] | None:
        """Give a constant's numbers; None for what is computed, fed, or lies in another file."""
        for tensor in self.graph.initializer:
            if tensor.name == name:
                is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
                return None if is_external else numpy_helper.to_array(tensor)
        node = self.producer(name)
        if node is not None and node.op_type == "Constant":
            return numpy_helper.to_array(node.attribute[0].t)
        return None

    def scalar(self, name: str) -> float | None:
        """Give a constant of one element as a number."""
        found = self.constant(name)
        return float(found.ravel()[0]) if found is not None and found.size == 1 else None

    def put(self, value: Any, kind: Any = np.float32) -> str:
        """Add a constant and give its name."""
        name = self._fresh()
        self.graph.initializer.append(numpy_helper.from_array(np.array(value, dtype=kind), name))
        return name

    def hold(self, name: str, values: NDArray[Any]) -> None:
        """Let an initializer hold these numbers in the graph file itself."""
        self.initializer(name).CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), name))

    def add(self, kind: str, inputs: Iterable[str], outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        """Add a node and give its first output."""
        names = [self._fresh() for _ in range(outputs)]
        node = onnx.helper.make_node(kind, list(inputs), names, self._fresh(), domain=domain, **attributes)
        self.graph.node.append(node)
        return names[0]

    def interpose(self, value: str, build: Callable[[str], str], users: list[Use] | None = None) -> None:
        """Let the users of a value, all of them by default, read what `build` makes of it."""
        is_output = users is None and self.is_output(value)
        chosen = self.users(value) if users is None else users
        source = value
        if is_output:
            source = self._fresh()
            self._rename_output(value, source)
        made = build(source)
        if is_output:
            self._rename_output(made, value)
            made = value
        for node, index in chosen:
            node.input[index] = made

    def reroute(self, source: str, replacement: str, target: str) -> str:
        """Copy everything between two values, starting from another value; give the copy's end."""
        made = {source: replacement}
        later, needed = {source}, self._needed_for(target)
        for node in list(self.graph.node):
            if not later.intersection(node.input):
                continue
            later.update(node.output)
            if not needed.intersection(node.output):
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = self._fresh()
            copy.input[:] = [made.get(name, name) for name in node.input]
            made |= {name: self._fresh() for name in node.output if name}
            copy.output[:] = [made.get(name, name) for name in node.output]
            self.graph.node.append(copy)
        if target not in made:
            raise NotApplicable(f"{source} does not lead to {target}")
        return made[target]

    def depends(self, value: str, source: str) -> bool:
        """Say whether a value is computed from another, or is it."""
        return source in self._needed_for(value)

    def _needed_for(self, value: str) -> set[str]:
        """Give the values that a value is computed from, itself among them."""
        makers = {name: node for node in self.graph.node for name in node.output}
        waiting, found = [value], set[str]()
        while waiting:
            name = waiting.pop()
            if name and name not in found:
                found.add(name)
                waiting += makers[name].input if name in makers else ()
        return found

    def _rename_output(self, old: str, new: str) -> None:
        for node in self.graph.node:
            node.output[:] = [new if name == old else name for name in node.output]

    def _fresh(self) -> str:
        self._added += 1
        return f"planted_{self._added}"

    def _sort(self) -> None:
        """Put nodes into an order in which every input is there before it is read."""
        known = {value.name for value in (*self.graph.input, *self.graph.initializer)} | {""}
        waiting, ordered = list(self.graph.node), list[onnx.NodeProto]()
        while waiting:
            late = []
            for node in waiting:
                if all(name in known for name in node.input):
                    ordered.append(node)
                    known.update(node.output)
                else:
                    late.append(node)
            if len(late) == len(waiting):
                raise ValueError(f"nodes that wait for each other: {[node.op_type for node in late][:5]}")
            waiting = late
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
        del self.graph.node[:]
        self.graph.node.extend(copies)


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Give a node's attribute."""
    found = next((entry for entry in node.attribute if entry.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give a node's attribute another value."""
    kept = [entry for entry in node.attribute if entry.name != name]
    made = onnx.helper.make_attribute(name, value)
    del node.attribute[:]
    node.attribute.extend([*kept, made])
