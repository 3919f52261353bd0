"""The devices that a model runs on, by name."""

from onnx_iron.provider.devices.cpu import Cpu
from onnx_iron.provider.devices.device import Device, Fallbacks
from onnx_iron.provider.devices.npu import Npu

DEVICES: dict[str, Device] = {device.name: device for device in (Cpu(), Npu())}

__all__ = ["DEVICES", "Device", "Fallbacks"]
