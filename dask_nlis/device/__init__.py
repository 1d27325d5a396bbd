"""Where tasks compute: on the host, or on a GPU in pieces of a block that its memory holds."""

from dask_nlis.device.memory import Kept, Memory, fit, sub_block_rows
from dask_nlis.device.places import DEVICES, AtWork, Device, check_device, choose, here, like, opened, probe, working_on

__all__ = [
    "DEVICES",
    "AtWork",
    "Device",
    "Kept",
    "Memory",
    "check_device",
    "choose",
    "fit",
    "here",
    "like",
    "opened",
    "probe",
    "sub_block_rows",
    "working_on",
]
