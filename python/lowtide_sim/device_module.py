"""The module that PyTorch knows as `torch.sim`: what `torch.cuda` is for a GPU.

torch, accelerate and diffusers look these functions up by name. There is one card, sim:0, and nothing to initialise.
"""

import types

import torch

_TYPE = "sim"
_initialized = True  # torch.utils.checkpoint looks at this
_card_name = "default"  # lowtide_sim.open writes it


# --- devices -----------------------------------------------------------------------------------------------------------


def _get_device_index(device=None, optional=True, allow_cpu=False):
    """Index of a device given as int, str, torch.device or None; there is only 0."""
    if device is None:
        return 0
    if not isinstance(device, int):
        device = torch.device(device)
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != _TYPE:
            raise ValueError(f"expected a {_TYPE} device, not {device}")
        device = device.index or 0
    if device not in (0, -1):  # -1: as with CUDA, "leave it as it is"
        raise RuntimeError(f"no device {_TYPE}:{device}: there is one simulated card, {_TYPE}:0")
    return 0


def is_available():
    return True


def is_initialized():
    return True


def init():
    pass


def _lazy_init():
    pass


def _is_in_bad_fork():
    return False


def device_count():
    return 1


def current_device():
    return 0


def set_device(device):
    _get_device_index(device)


def _exchange_device(device):
    _get_device_index(device)
    return 0


def _maybe_exchange_device(device):
    return _exchange_device(device)


class device:
    """Context manager: the device that new tensors go to, which is always sim:0."""

    def __init__(self, device):
        self.idx = _get_device_index(device)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


class device_of(device):
    """The same for the device of a tensor; one that is elsewhere changes nothing."""

    def __init__(self, tensor):
        super().__init__(tensor.device if tensor.device.type == _TYPE else None)


def get_device_name(device=None):
    _get_device_index(device)
    return _card_name


def get_device_properties(device=None):
    """Name and memory; a simulated card has no multiprocessors or capabilities."""
    return types.SimpleNamespace(name=get_device_name(device), total_memory=mem_get_info()[1])


def synchronize(device=None):
    torch.accelerator.synchronize(_get_device_index(device))


# --- streams and events --------------------------------------------------------------------------------------------------


class Stream(torch.Stream):
    """A stream of the card, from a pool of 32; compute that names no stream runs on the default one."""

    def __new__(cls, device=None, priority=0, **ids):
        if ids:  # stream_id, device_index, device_type: one that exists already
            return super().__new__(cls, **ids)
        return super().__new__(cls, device=f"{_TYPE}:{_get_device_index(device)}", priority=priority)


def _of_this_module(stream):
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device=None):
    return _of_this_module(torch.accelerator.current_stream(_get_device_index(device)))


def default_stream(device=None):
    private_use_1 = current_stream(device).device_type
    return Stream(stream_id=0, device_index=0, device_type=private_use_1)


def set_stream(stream):
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """`with torch.sim.stream(s):` work is submitted to `s`. None changes nothing."""

    def __init__(self, stream):
        self.stream = stream
        self._outer = []  # a list: one context may be entered again while it is open

    def __enter__(self):
        self._outer.append(current_stream())
        set_stream(self.stream)
        return self.stream

    def __exit__(self, *exception):
        set_stream(self._outer.pop())
        return False


def stream(stream):
    return StreamContext(stream)


def Event(enable_timing=False, blocking=False, interprocess=False):
    """A point in a stream; its times are those of the card's virtual clocks.

    A function, since torch.Event refuses to compare times with events of derived classes.
    """
    if interprocess:
        raise RuntimeError("events of the simulated card cannot cross processes")
    return torch.Event(device=_TYPE, enable_timing=enable_timing, blocking=blocking)


# --- memory: without the card's context, as with CUDA ----------------------------------------------------------------------


def empty_cache():
    torch.accelerator.empty_cache()


def ipc_collect():
    pass


def memory_stats(device=None):
    return torch.accelerator.memory_stats(_get_device_index(device))


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(_get_device_index(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(_get_device_index(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(_get_device_index(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(_get_device_index(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(_get_device_index(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device))


def mem_get_info(device=None):
    """(free, total) bytes; what is free does not include the context."""
    return torch.accelerator.get_memory_info(_get_device_index(device))


# --- random numbers: the card runs the CPU's kernels, which draw from the CPU's generator --------------------------------------


def manual_seed(seed):
    torch.default_generator.manual_seed(int(seed))  # not torch.manual_seed, which calls this


manual_seed_all = manual_seed


def seed():
    torch.default_generator.seed()


seed_all = seed


def initial_seed():
    return torch.default_generator.initial_seed()


def get_rng_state(device=None):
    _get_device_index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state, device=None):
    _get_device_index(device)
    torch.default_generator.set_state(new_state)


def get_rng_state_all():
    return [get_rng_state()]


def set_rng_state_all(new_states):
    for state in new_states:
        set_rng_state(state)


# --- data types ---------------------------------------------------------------------------------------------------------------


def get_amp_supported_dtype():
    """What torch.autocast may cast to: nothing, with a warning of torch's, where the library knows no casts."""
    casts = torch._C._dispatch_has_kernel_for_dispatch_key("aten::linear", "AutocastPrivateUse1")
    return [torch.float16, torch.bfloat16] if casts else []


def is_bf16_supported(including_emulation=True):
    return True
