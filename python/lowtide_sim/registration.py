"""Finds liblowtide_sim.so and tells PyTorch's Python side about it."""

import os
import sys
from pathlib import Path

import torch

from .errors import SimError

NAME = "sim"
TORCH = "2.11"  # the C++ interface that the library is built against; third_party/requirements.txt pins it
FILE = "liblowtide_sim.so"
_PACKAGE = Path(__file__).resolve().parent

_loaded_from = None


def load(library=None):
    """See lowtide_sim.load."""
    global _loaded_from
    if _loaded_from is not None:
        if library is not None and Path(library).resolve() != _loaded_from:
            raise SimError(f"{_loaded_from} is loaded already; a process has one simulated card")
        return torch.sim
    _check_torch()
    path = _find(library)
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise SimError(f"cannot load {path}: {str(error).splitlines()[0]}; run tools/build") from None
    if torch._C._get_privateuse1_backend_name() != NAME:
        other = torch._C._get_privateuse1_backend_name()
        raise SimError(f"PyTorch holds device '{other}' where '{NAME}' should be: use a process without that backend")
    _register()
    _loaded_from = path
    return torch.sim


def _check_torch():
    version = torch.__version__.split("+")[0]
    if version.split(".")[:2] != TORCH.split("."):
        raise SimError(f"lowtide is built against torch {TORCH}, this is {version}: use the Python of .venv, or rebuild")
    current = torch._C._get_privateuse1_backend_name()
    if current not in ("privateuseone", NAME):
        raise SimError(f"this process uses device '{current}' already, and PyTorch has room for one such device")


def _find(library):
    if library is not None:
        return _existing(library, "the library given")
    named = os.environ.get("LOWTIDE_SIM_LIBRARY")
    if named:
        return _existing(named, "LOWTIDE_SIM_LIBRARY")
    root = _PACKAGE.parents[1]
    folders = [root / "build" / "release" / "lib", root / "lib", *_installed_folders()]
    for folder in folders:
        if (folder / FILE).is_file():
            return (folder / FILE).resolve()
    raise SimError(f"{FILE} not found: run tools/build, or set LOWTIDE_SIM_LIBRARY")


def _installed_folders():
    for prefix in dict.fromkeys([sys.prefix, "/usr/local", "/usr"]):
        for name in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
            yield Path(prefix) / name


def _existing(path, what):
    path = Path(path)
    if not path.is_file():
        raise SimError(f"{what} is {path}, which does not exist: run tools/build")
    return path.resolve()


def _register():
    # The library has taken the name in C++; this tells torch.utils, which keeps a copy.
    torch.utils.rename_privateuse1_backend(NAME)
    if hasattr(torch, NAME):
        raise SimError(f"torch.{NAME} is taken by {getattr(torch, NAME)!r}: call lowtide_sim.load() before it is registered")
    from . import device_module  # late: its classes derive from the accelerator's streams and events

    torch._register_device_module(NAME, device_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
