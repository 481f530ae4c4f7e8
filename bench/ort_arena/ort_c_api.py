"""The part of ONNX Runtime's C API that shows what its arena holds, by ctypes: the Python package does not expose it.

OrtApi is a table of function pointers to which later versions only append, so a position holds for every later version. The
positions below are those of include/onnxruntime/core/session/onnxruntime_c_api.h of v1.23, the first version with
AllocatorGetStats, and that is the version asked for. Names and keys: https://onnxruntime.ai/docs/api/c/struct_ort_api.html
"""

import ctypes
import importlib.metadata
import importlib.util
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

API_VERSION = 23
ERROR = 3  # OrtLoggingLevel
FLOAT = 1  # ONNXTensorElementDataType
DEVICE_ALLOCATOR, ARENA_ALLOCATOR = 0, 1  # OrtAllocatorType
MEM_TYPE_DEFAULT = 0  # OrtMemType
STRATEGIES = {"next-power-of-two": 0, "same-as-requested": 1}  # ArenaExtendStrategy

POSITIONS = {
    "GetErrorMessage": 2, "CreateEnv": 3, "CreateSession": 7, "Run": 9, "CreateSessionOptions": 10,
    "SetOptimizedModelFilePath": 11, "EnableMemPattern": 16, "DisableMemPattern": 17, "SetIntraOpNumThreads": 24,
    "SessionGetInputCount": 30, "SessionGetOutputCount": 31, "SessionGetInputName": 36, "SessionGetOutputName": 37,
    "CreateTensorWithDataAsOrtValue": 49, "GetTensorMutableData": 51, "GetTensorShapeElementCount": 64,
    "GetTensorTypeAndShape": 65, "CreateCpuMemoryInfo": 69, "GetAllocatorWithDefaultOptions": 78, "ReleaseStatus": 93,
    "ReleaseValue": 96, "ReleaseTensorTypeAndShapeInfo": 99, "AddSessionConfigEntry": 130, "CreateAllocator": 131,
    "CreateAndRegisterAllocator": 144, "CreateArenaCfg": 156, "RegisterAllocator": 176, "GetKeyValuePairs": 298,
    "ReleaseKeyValuePairs": 300, "AllocatorGetStats": 319,
}
RELEASES = ("ReleaseStatus", "ReleaseValue", "ReleaseTensorTypeAndShapeInfo", "ReleaseKeyValuePairs")  # these give nothing back


class OrtError(Exception):
    """What ONNX Runtime says went wrong."""


class _ApiBase(ctypes.Structure):
    _fields_ = [("GetApi", ctypes.CFUNCTYPE(c_void_p, c_uint32)), ("GetVersionString", ctypes.CFUNCTYPE(c_char_p))]


def library_path():
    package = Path(importlib.util.find_spec("onnxruntime").origin).parent
    found = sorted((package / "capi").glob("libonnxruntime.so*"))
    if not found:
        raise OrtError(f"no libonnxruntime.so in {package / 'capi'}: the wheel {importlib.metadata.version('onnxruntime')} has none")
    return found[0]


class Api:
    """Functions by name: `api.CreateEnv(...)`. A status that is not null becomes OrtError."""

    def __init__(self):
        library = ctypes.CDLL(str(library_path()))
        library.OrtGetApiBase.restype = POINTER(_ApiBase)
        base = library.OrtGetApiBase().contents
        self.version = base.GetVersionString().decode()
        address = base.GetApi(API_VERSION)
        if not address:
            raise OrtError(f"ONNX Runtime {self.version} does not offer version {API_VERSION} of its API")
        self._table = ctypes.cast(address, POINTER(c_void_p))

    def __getattr__(self, name):
        pointer = self._table[POSITIONS[name]]
        if name in RELEASES:
            function = ctypes.CFUNCTYPE(None, c_void_p)(pointer)
        elif name == "GetErrorMessage":
            function = ctypes.CFUNCTYPE(c_char_p, c_void_p)(pointer)
        elif name == "GetKeyValuePairs":
            function = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_void_p)(pointer)
        else:
            function = self._checked(name, pointer)
        setattr(self, name, function)
        return function

    def _checked(self, name, pointer):
        raw = ctypes.CFUNCTYPE(c_void_p)(pointer)

        def call(*arguments):
            status = raw(*arguments)
            if status:
                message = self.GetErrorMessage(status).decode(errors="replace")
                self.ReleaseStatus(status)
                raise OrtError(f"{name}: {message}")

        return call


# struct OrtAllocator up to what version 23 knows; functions that are null are optional.
_ALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)
_FREE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_INFO = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class _Allocator(ctypes.Structure):
    _fields_ = [("version", c_uint32), ("Alloc", _ALLOC), ("Free", _FREE), ("Info", _INFO), ("Reserve", _ALLOC),
                ("GetStats", c_void_p), ("AllocOnStream", c_void_p)]


class CountingAllocator:
    """An allocator for the environment in place of the arena: exactly what is asked for, counted."""

    ALIGNMENT = 64

    def __init__(self, info):
        self.live = self.peak = self.calls = 0
        self._sizes = {}
        self._libc = ctypes.CDLL(None)
        self._libc.aligned_alloc.restype = c_void_p
        self._libc.aligned_alloc.argtypes = [c_size_t, c_size_t]
        self._libc.free.argtypes = [c_void_p]
        self.struct = _Allocator(API_VERSION, _ALLOC(self._alloc), _FREE(self._free), _INFO(lambda _: info.value), _ALLOC(self._alloc),
                                 None, None)

    def _alloc(self, _, size):
        if size == 0:
            return None
        pointer = self._libc.aligned_alloc(self.ALIGNMENT, -(-size // self.ALIGNMENT) * self.ALIGNMENT)
        self._sizes[pointer] = size
        self.calls += 1
        self.live += size
        self.peak = max(self.peak, self.live)
        return pointer

    def _free(self, _, pointer):
        if pointer:
            self.live -= self._sizes.pop(pointer)
            self._libc.free(pointer)


class Session:
    """One model on the CPU, one thread, whose tensors come from one arena, or from a counting allocator in its place.

    A session's own arena takes no settings: the arena is registered with the environment, and the session told to use that.
    """

    def __init__(self, model, pattern, strategy=None, counting=False, optimized_model=None):
        self.api = api = Api()
        self._keep = []  # what ONNX Runtime goes on using
        environment, options, self.session = c_void_p(), c_void_p(), c_void_p()
        api.CreateEnv(c_int(ERROR), b"ort_arena", byref(environment))
        self.info, self.counter = c_void_p(), None
        if counting:
            api.CreateCpuMemoryInfo(c_int(DEVICE_ALLOCATOR), c_int(MEM_TYPE_DEFAULT), byref(self.info))
            self.counter = CountingAllocator(self.info)
            api.RegisterAllocator(environment, byref(self.counter.struct))
        else:
            api.CreateCpuMemoryInfo(c_int(ARENA_ALLOCATOR), c_int(MEM_TYPE_DEFAULT), byref(self.info))
            arena = c_void_p()
            # No limit, and ONNX Runtime's own first size and splitting.
            api.CreateArenaCfg(c_size_t(0), c_int(STRATEGIES[strategy]), c_int(-1), c_int(-1), byref(arena))
            api.CreateAndRegisterAllocator(environment, self.info, arena)
        api.CreateSessionOptions(byref(options))
        (api.EnableMemPattern if pattern else api.DisableMemPattern)(options)
        api.SetIntraOpNumThreads(options, c_int(1))
        api.AddSessionConfigEntry(options, b"session.use_env_allocators", b"1")
        # Weights stay out of the arena.
        api.AddSessionConfigEntry(options, b"session.use_device_allocator_for_initializers", b"1")
        if optimized_model:
            api.SetOptimizedModelFilePath(options, str(optimized_model).encode())
        api.CreateSession(environment, str(model).encode(), options, byref(self.session))
        self._names()
        self.allocator = c_void_p()
        api.CreateAllocator(self.session, self.info, byref(self.allocator))
        self._data_info = c_void_p()
        api.CreateCpuMemoryInfo(c_int(DEVICE_ALLOCATOR), c_int(MEM_TYPE_DEFAULT), byref(self._data_info))

    def _names(self):
        default, count, name = c_void_p(), c_size_t(), c_char_p()
        self.api.GetAllocatorWithDefaultOptions(byref(default))
        self.inputs, self.outputs = [], []
        for names, kind in ((self.inputs, "Input"), (self.outputs, "Output")):
            getattr(self.api, f"SessionGet{kind}Count")(self.session, byref(count))
            for index in range(count.value):
                getattr(self.api, f"SessionGet{kind}Name")(self.session, c_size_t(index), default, byref(name))
                names.append(name.value)

    def run(self, values, shape):
        """One run on a ctypes array of floats; returns the bytes of the first result. All results are released."""
        api, value = self.api, c_void_p()
        dimensions = (c_int64 * len(shape))(*shape)
        api.CreateTensorWithDataAsOrtValue(self._data_info, values, c_size_t(ctypes.sizeof(values)), dimensions,
                                           c_size_t(len(shape)), c_int(FLOAT), byref(value))
        results = (c_void_p * len(self.outputs))()
        api.Run(self.session, None, (c_char_p * 1)(self.inputs[0]), (c_void_p * 1)(value), c_size_t(1),
                (c_char_p * len(self.outputs))(*self.outputs), c_size_t(len(self.outputs)), results)
        first = self._float_bytes(c_void_p(results[0]))
        for result in [*results, value.value]:
            api.ReleaseValue(result)
        return first

    def _float_bytes(self, value):
        facts, count, data = c_void_p(), c_size_t(), c_void_p()
        self.api.GetTensorTypeAndShape(value, byref(facts))
        self.api.GetTensorShapeElementCount(facts, byref(count))
        self.api.ReleaseTensorTypeAndShapeInfo(facts)
        self.api.GetTensorMutableData(value, byref(data))
        return ctypes.string_at(data.value, count.value * 4)

    def arena(self):
        """The arena's own counts: TotalAllocated, InUse, MaxInUse, NumAllocs, NumArenaExtensions and others."""
        pairs, keys, values, count = c_void_p(), POINTER(c_char_p)(), POINTER(c_char_p)(), c_size_t()
        self.api.AllocatorGetStats(self.allocator, byref(pairs))
        self.api.GetKeyValuePairs(pairs, byref(keys), byref(values), byref(count))
        found = {keys[i].decode(): int(values[i]) for i in range(count.value)}
        self.api.ReleaseKeyValuePairs(pairs)
        if "TotalAllocated" not in found:
            raise OrtError(f"AllocatorGetStats of ONNX Runtime {self.api.version} tells {sorted(found)}, not TotalAllocated")
        return found
