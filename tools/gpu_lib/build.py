"""Is there a GPU, and the lowtide that is checked on it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

CONFIGURE_SECONDS, BUILD_SECONDS, EXTRA_SECONDS = 60, 240, 120


class BuildFailed(Exception):
    """One line and the last lines of the tool."""


def gpu_problem():
    """Why this process can use no GPU; None where it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver on this machine (libcuda.so.1)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return f"the NVIDIA driver has no device (status {status}, CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')})"
    try:
        import torch
    except ImportError:
        return f"{sys.executable} has no torch"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} of {sys.executable} cannot use it"
    return None


def call(arguments, seconds, what):
    try:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{what}: not done after {seconds} s") from None
    except FileNotFoundError as error:
        raise BuildFailed(f"{what}: {error}") from None
    if done.returncode != 0:
        raise BuildFailed(f"{what} failed:\n" + "\n".join(done.stdout.splitlines()[-25:]))


def program(root, arguments):
    """The `lowtide` to check: of the given build, or built now with this Python's torch."""
    if arguments.build_dir:
        path = arguments.build_dir / "bin" / "lowtide"
        if not path.exists():
            raise BuildFailed(f"there is no {path}: build it, or leave --build-dir out")
        return path.resolve()
    import torch

    folder = root / "build" / "gpu"
    configure = ["cmake", "-S", str(root), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DLOWTIDE_WARNINGS_AS_ERRORS=OFF",
                 f"-DLOWTIDE_TORCH_DIR={Path(torch.__file__).parent}"]
    if (arguments.carried / "include" / "zip.h").exists():
        configure.append(f"-DLOWTIDE_CARRIED_DEPS={arguments.carried.resolve()}")
    call(configure, CONFIGURE_SECONDS, "cmake")
    if arguments.configure_only:
        return folder
    call(["ninja", "-C", str(folder), "lowtide_cli", "lowtide_cuda"], BUILD_SECONDS, "the build")
    try:  # checked if it is there; worth no failure of the rest
        call(["ninja", "-C", str(folder), "conformance_test"], EXTRA_SECONDS, "the build of the conformance suite")
    except BuildFailed as error:
        print(f"gpu_check: {error}", file=sys.stderr)
    return folder / "bin" / "lowtide"
