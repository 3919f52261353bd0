"""A planned subgraph, running: buffers, weights, run lists, states."""

from __future__ import annotations

import struct
import threading
import traceback
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from onnx_iron.dtypes import Array
from onnx_iron.provider.devices.npu.arrays import SharedMemory, find, memory, weight_buffer
from onnx_iron.provider.devices.npu.artifacts import image, images, kernel_name
from onnx_iron.provider.devices.npu.binding import Binding, Prepared
from onnx_iron.provider.devices.npu.checks import check, is_checked
from onnx_iron.provider.devices.npu.errors import ContextLostError, NpuError
from onnx_iron.provider.devices.npu.host import HostStep
from onnx_iron.provider.devices.npu.limits import within_watchdog, work_seconds
from onnx_iron.provider.devices.npu.plan import Place, Plan, Segment, Work
from onnx_iron.provider.devices.npu.uses import Uses
from onnx_iron.provider.devices.npu.work import Run
from onnx_iron.provider.devices.npu.xrt import Buffer, Context, Device


class NpuProgram:
    """A subgraph for one set of input shapes. One call at a time."""

    def __init__(self, plan: Plan, device: Device, timeout_ms: int) -> None:
        self._plan = plan
        self._device = device
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._uses = Uses(plan)
        self._key = object()
        self._host = {
            id(work): HostStep(work.step, plan.lowering) for work in plan.work if not work.on_npu
        }
        self._images = self._make_images()
        self._checked = {
            number: [step for work in segment.work for step in work.parts if is_checked(step)]
            for number, segment in enumerate(plan.segments)
        }
        self._arena = device.buffer(plan.arena_bytes) if plan.arena_bytes else None
        self._own: dict[tuple[Place, int], Buffer] = {}
        self._constants: dict[str, Buffer] = {}
        self._uploaded = False
        self._checked_outputs: list[int] = []

    # -- the whole call ---------------------------------------------------------------------

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """One call with the addresses of its inputs and outputs.

        States that live in shared arrays are as before where it fails.

        Raises:
            NpuError: the NPU failed.
            ValueError: a per-call value that is out of its bounds.
        """
        with self._lock:
            if outputs != self._checked_outputs:
                self._check_outputs(outputs)
                self._checked_outputs = list(outputs)
            self._upload(inputs)
            try:
                self._once(inputs, outputs)
                return
            except ContextLostError:
                pass  # once more, when nothing holds the lost one any longer
            try:
                self._once(inputs, outputs)
            except ContextLostError as error:
                raise NpuError(f"{error}; it was rebuilt once, and lost again") from None

    def close(self) -> None:
        """Give everything back."""
        self._device.forget(self._key)
        for step in self._host.values():
            step.close()
        self._host.clear()
        self._own.clear()
        self._constants.clear()
        self._arena = None

    def _once(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        call = self._bind(inputs, outputs)
        for number, segment in enumerate(self._plan.segments):
            if segment.on_npu:
                self._run_npu(number, segment, call)
            else:
                for work in segment.work:
                    self._run_host(work, call)
        self._finish(call)

    def _check_outputs(self, outputs: Sequence[int]) -> None:
        """Refuse outputs that share memory, in the CPU's words."""
        specs = self._plan.lowering.specs
        spans = sorted(
            (address, address + specs[name].bytes, number)
            for number, (name, address) in enumerate(zip(self._plan.outputs, outputs, strict=True))
        )
        for (_, end, one), (begin, _, other) in pairwise(spans):
            if begin < end:
                first, second = sorted((one, other))
                raise ValueError(
                    f"onnx-iron: outputs {first} and {second} share memory; bind each to a buffer "
                    "of its own"
                )

    # -- memory -----------------------------------------------------------------------------

    def _upload(self, inputs: Sequence[int]) -> None:
        """Copy the weights to the NPU's buffers, in the first call."""
        if self._uploaded:
            return
        lowering = self._plan.lowering
        constants: dict[str, Buffer] = {}
        for root in self._uses.npu:
            home = self._plan.homes[root]
            spec = lowering.specs[root]
            if home.place is Place.CONSTANT:
                constants[root] = weight_buffer(memory(inputs[home.index], spec.bytes))
            elif home.place is Place.JOINED:
                constants[root] = weight_buffer(self._joined(root, inputs))
            elif home.place is Place.LITERAL:
                literal = np.ascontiguousarray(lowering.literals[root])
                constants[root] = weight_buffer(literal.reshape(-1).view(np.uint8))
        self._constants = constants
        self._uploaded = True

    def _joined(self, root: str, inputs: Sequence[int]) -> Array:
        """Several weights one behind the other."""
        specs, names = self._plan.lowering.specs, self._plan.inputs
        return np.concatenate(
            [memory(inputs[n], specs[names[n]].bytes) for n in self._plan.joined[root]]
        )

    def _buffer(self, place: Place, index: int, size: int) -> Buffer:
        """The program's own buffer for an input or output."""
        if (place, index) not in self._own:
            self._own[place, index] = self._device.buffer(size)
        return self._own[place, index]

    def _bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Binding:
        """Find or fill the buffers of the call's inputs, and choose those of its outputs."""
        call = Binding(inputs, outputs, {}, {}, {}, {}, {})
        plan = self._plan
        for number, name in enumerate(plan.inputs):
            if plan.homes[name].place is not Place.INPUT:
                continue
            size = plan.lowering.specs[name].bytes
            shared = find(inputs[number], size)
            if shared is not None:
                call.shared_inputs[number] = shared
                if name in self._uses.host:
                    shared.fetch()
            if name in self._uses.npu:
                call.given[number] = self._given(number, inputs[number], size, shared)
        for number, name in enumerate(plan.outputs):
            size = plan.lowering.specs[name].bytes
            shared = find(outputs[number], size)
            if shared is not None:
                call.shared_outputs[number] = shared
            if number in self._uses.npu_outputs:
                call.made[number] = self._made(number, size, call)
            elif self._overwrites(number, size, call):
                call.bounced[number] = np.empty(size, np.uint8)
        return call

    def _overwrites(self, number: int, size: int, call: Binding) -> bool:
        """Whether an output of the host's shares memory with an input that may be read again: by a
        later step, or by a second run of the call.
        """
        begin = call.outputs[number]
        for index, name in enumerate(self._plan.inputs):
            if self._plan.homes[name].place is not Place.INPUT:
                continue
            address, length = call.inputs[index], self._plan.lowering.specs[name].bytes
            if address < begin + size and begin < address + length:
                # Writing the same part of a state twice does no harm.
                return not (address == begin and (index, number) in self._uses.repeatable)
        return False

    def _given(self, number: int, address: int, size: int, shared: SharedMemory | None) -> Buffer:
        if shared is not None:
            return shared.for_device()
        buffer = self._buffer(Place.INPUT, number, size)
        buffer.bytes[:] = memory(address, size)
        buffer.to_device()
        return buffer

    def _made(self, number: int, size: int, call: Binding) -> Buffer:
        """Where the NPU writes an output.

        A state that is updated in part is written in place; one that is replaced goes into the
        second buffer of its shared memory, so that a call that fails leaves it as it was.
        """
        shared = call.shared_outputs.get(number)
        old = [given for given, made in self._plan.updates if made == number]
        if not old:
            return shared.next() if shared else self._buffer(Place.OUTPUT, number, size)
        before = call.shared_inputs.get(old[0])
        if shared is not None and shared is before:
            return shared.for_device()
        buffer = shared.next() if shared else self._buffer(Place.OUTPUT, number, size)
        if before is not None:
            before.fetch()
        buffer.bytes[:] = memory(call.inputs[old[0]], size)
        buffer.to_device()
        return buffer

    def _finish(self, call: Binding) -> None:
        """Hand the outputs over."""
        for number, name in enumerate(self._plan.outputs):
            shared = call.shared_outputs.get(number)
            buffer = call.made.get(number)
            if buffer is None:
                if number in call.bounced:
                    content = call.bounced[number]
                    memory(call.outputs[number], content.nbytes)[:] = content
                if shared is not None:
                    shared.touch()
            elif shared is not None:
                shared.written(buffer)
            else:
                buffer.from_device()
                size = self._plan.lowering.specs[name].bytes
                memory(call.outputs[number], size)[:] = buffer.bytes

    def _npu_slot(self, name: str, call: Binding) -> tuple[Buffer, int]:
        """The buffer that holds a value for the NPU, and where in it the value begins."""
        root, offset = self._plan.lowering.resolve(name)
        home = self._plan.homes[root]
        match home.place:
            case Place.INPUT:
                return call.given[home.index], offset
            case Place.OUTPUT:
                return call.made[home.index], offset
            case Place.ARENA:
                assert self._arena is not None
                return self._arena, home.offset + offset
        return self._constants[root], offset

    def _host_address(self, name: str, call: Binding) -> int:
        root, offset = self._plan.lowering.resolve(name)
        home = self._plan.homes[root]
        match home.place:
            case Place.INPUT | Place.CONSTANT:
                return call.inputs[home.index] + offset
            case Place.JOINED:
                return call.inputs[self._plan.inputs.index(name)]
            case Place.OUTPUT:
                if home.index in call.made:
                    return call.made[home.index].address + offset
                if home.index in call.bounced:
                    return int(call.bounced[home.index].ctypes.data) + offset
                return call.outputs[home.index] + offset
            case Place.ARENA:
                assert self._arena is not None
                return self._arena.address + home.offset + offset
        return int(self._plan.lowering.literals[root].ctypes.data) + offset

    # -- steps ------------------------------------------------------------------------------

    def _run_host(self, work: Work, call: Binding) -> None:
        step = work.step
        for root in self._uses.bring[id(work)]:
            buffer, offset = self._npu_slot(root, call)
            buffer.from_device(offset, self._plan.lowering.specs[root].bytes)
        self._host[id(work)].run(
            [None if name is None else self._host_address(name, call) for name in step.inputs],
            [self._host_address(name, call) for name in step.outputs],
        )
        for root in self._uses.send[id(work)]:
            buffer, offset = self._npu_slot(root, call)
            buffer.to_device(offset, self._plan.lowering.specs[root].bytes)

    def _run_npu(self, number: int, segment: Segment, call: Binding) -> None:
        """Run a segment's designs: one run list for each image, and mostly there is one."""
        for step in self._checked[number]:
            check(step, self._plan.lowering, lambda name: self._integers(name, call))
        for part, (path, runs) in enumerate(self._images[number]):
            with self._device.context(path) as context:
                try:
                    self._submit(context, (number, part), runs, call)
                except NpuError as error:
                    # What is in flight may still write to the buffers; the context ends that, and
                    # it ends when no frame of the failed call holds a part of it.
                    traceback.clear_frames(error.__traceback__)
                    self._device.drop(context)
                    raise

    def _submit(
        self, context: Context, key: tuple[int, int], runs: Sequence[Run], call: Binding
    ) -> None:
        """Run a list. Nothing of XRT's outlives this but what the context keeps: it would keep the
        hardware context, too.
        """
        prepared = self._prepared(context, key, runs, call)
        self._set_values(prepared, runs, call)
        prepared.runs.run(self._timeout_ms)

    def _integers(self, name: str | None, call: Binding) -> Sequence[int]:
        """The elements of an index operand, from the host's memory."""
        if name is None:
            return ()
        spec = self._plan.lowering.specs[name]
        if spec.dtype.kind != "i":
            return ()
        raw = memory(self._host_address(name, call), spec.bytes)
        return [int(n) for n in raw.view(spec.dtype)]

    def _prepared(
        self, context: Context, key: tuple[int, int], runs: Sequence[Run], call: Binding
    ) -> Prepared:
        """The run list with this call's buffers, made in the context where it isn't there yet."""
        kept: dict[tuple[int, int], Prepared] = context.kept.setdefault(self._key, {})
        prepared = kept.get(key)
        if prepared is None:
            prepared = kept[key] = self._prepare(context, runs, call)
            return prepared
        for run, position, name in prepared.moving:
            prepared.runs.change(run, position, self._argument(name, call))
        return prepared

    def _prepare(self, context: Context, runs: Sequence[Run], call: Binding) -> Prepared:
        prepared = Prepared(context.run_list(), {}, {}, [])
        for number, run in enumerate(runs):
            name = kernel_name(run.artifact)
            values = self._values(run, call)
            instructions = context.instructions(name, run.instructions(values), shared=not values)
            arguments = [self._argument(operand, call) for operand in run.buffers]
            prepared.runs.add(context.kernel(name), instructions, arguments)
            if values:
                prepared.instructions[number] = instructions
                prepared.values[number] = values
            prepared.moving += [
                (number, position, operand)
                for position, operand in enumerate(run.buffers)
                if self._uses.moves(operand)
            ]
        return prepared

    def _argument(self, name: str, call: Binding) -> object:
        buffer, offset = self._npu_slot(name, call)
        return buffer.part(offset, self._plan.lowering.specs[name].bytes)

    def _values(self, run: Run, call: Binding) -> tuple[int, ...]:
        places = [place for work in run.work for place in work.values.values()]
        operands = {name: self._integers(name, call) for name, _ in places}
        return tuple(operands[name][index] for name, index in places)

    def _set_values(self, prepared: Prepared, runs: Sequence[Run], call: Binding) -> None:
        """Put the per-call values into the instructions."""
        for number, before in prepared.values.items():
            values = self._values(runs[number], call)
            if values == before:
                continue
            buffer, words = prepared.instructions[number], runs[number].numbers(values)
            for place, word in words:
                struct.pack_into("<I", buffer.bytes.data, place, word)
            first = min(place for place, _ in words)
            buffer.to_device(first, max(place for place, _ in words) + 4 - first)
            prepared.values[number] = values

    def _make_images(self) -> dict[int, list[tuple[Path, list[Run]]]]:
        """For each segment of the NPU's its run lists: an image's file, and the runs in order."""
        groups = images([work.artifact for work in self._plan.work if work.artifact is not None])
        paths = {
            made.configuration: path
            for group in groups
            for path in [image(group, self._device.target)]
            for made in group
        }

        def path_of(run: Run) -> Path:
            return paths[run.artifact.configuration]

        def seconds(run: Run) -> float:
            specs, target = self._plan.lowering.specs, self._device.target.name
            return sum(work_seconds(work, specs, target) for work in run.work)

        return {
            number: [
                (path, list(part))
                for path, runs in groupby(segment.runs, path_of)
                for part in within_watchdog(list(runs), seconds)
            ]
            for number, segment in enumerate(self._plan.segments)
            if segment.on_npu
        }
