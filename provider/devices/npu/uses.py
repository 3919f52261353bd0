"""Who reads and writes the values of a planned subgraph, and what is synced for them."""

from __future__ import annotations

from onnx_iron.provider.devices.npu.work import Place, Plan


class Uses:
    """Who reads and writes which roots.

    Attributes:
        npu: roots that the NPU reads or writes.
        host: roots that a step of the host reads.
        npu_outputs: numbers of the outputs that live in a buffer of the NPU's.
        repeatable: (input, output) numbers of states of which the host writes a part, in place.
        bring: for each step of the host, by id, the roots that the NPU has newer contents of.
        send: for each, the roots that it writes and the NPU sees.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.npu: set[str] = set()
        self.host: set[str] = set()
        for work in plan.work:
            roots = {self._root(name) for name in work.step.inputs if name is not None}
            if work.on_npu:
                self.npu |= {self._root(name) for name in work.operands}
            else:
                self.host |= roots
        self.npu_outputs = {
            plan.homes[root].index for root in self.npu if plan.homes[root].place is Place.OUTPUT
        }
        self.repeatable = {
            (given, made)
            for given, made in plan.pairs
            if all(
                # Putting elements into a part of a state twice is as good as once.
                work.step.op.moves and work.step.op.updates
                for work in plan.work
                if any(self._is_output(name, made) for name in work.step.outputs)
            )
        }
        self.bring: dict[int, list[str]] = {}
        self.send: dict[int, list[str]] = {}
        newer: set[str] = set()
        for work in plan.work:
            if work.on_npu:
                newer |= {self._root(name) for name in work.written}
                continue
            reads = {self._root(name) for name in work.step.inputs if name is not None}
            self.bring[id(work)] = sorted(reads & newer)
            newer -= reads
            writes = {self._root(name) for name in work.step.outputs}
            self.send[id(work)] = sorted(root for root in writes if self._seen(root))

    def moves(self, name: str) -> bool:
        """Whether a value may be elsewhere at each call."""
        return self._plan.homes[self._root(name)].place in (Place.INPUT, Place.OUTPUT)

    def _is_output(self, name: str, number: int) -> bool:
        home = self._plan.homes[self._root(name)]
        return home.place is Place.OUTPUT and home.index == number

    def _root(self, name: str) -> str:
        return self._plan.lowering.resolve(name)[0]

    def _seen(self, root: str) -> bool:
        home = self._plan.homes[root]
        if home.place is Place.OUTPUT:
            return home.index in self.npu_outputs
        return root in self.npu
