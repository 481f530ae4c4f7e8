"""lowtide's simulated graphics card as a PyTorch device: `torch.sim`.

    import lowtide_sim
    lowtide_sim.open("6GiB")            # loads the library, too
    x = torch.ones(4, device="sim") * 2
    lowtide_sim.stats()["peak_bytes"]

docs/python-door.md has more. Loading changes the process: device "sim" is registered and PyTorch's CPU allocator replaced.
"""

import json

import torch

from . import cards, registration
from .errors import SimError

__all__ = ["SimError", "load", "open", "reset", "stats"]


def load(library=None):
    """Registers device "sim" with PyTorch and returns the device module, `torch.sim`; further calls change nothing.

    `library` is the path of liblowtide_sim.so, by default what LOWTIDE_SIM_LIBRARY names, else the one of the release build,
    else an installed one.
    """
    return registration.load(library)


def open(card="default"):  # as os.open and gzip.open: users write lowtide_sim.open
    """Makes the simulated card the one described, with all counters at zero; loads the library if that is still to do.

    `card` is a name in configs/cards/, a file, a size such as "6GiB" (the default card with that much memory), or the card
    itself as a dict or JSON text. A card cannot be replaced while memory is allocated on it.
    """
    registration.load()
    text = cards.card_json(card)
    try:
        torch.ops.lowtide_sim.open(text)
    except RuntimeError as error:
        raise SimError(str(error).splitlines()[0]) from None
    torch.sim._card_name = json.loads(text).get("name", "default")


def reset():
    """Finishes pending copies, zeroes clocks and counters; the peak becomes what is allocated now. Memory stays."""
    registration.load()
    torch.ops.lowtide_sim.reset()


def stats():
    """The card's counters since the last reset(), as a dict.

    used_bytes, peak_bytes, reserved_bytes (all with the context), h2d_bytes, h2d_copies, d2h_bytes, modelled_s (the latest of
    all clocks), compute_s, link_s, stall_s (compute waiting for copies).
    """
    registration.load()
    return json.loads(torch.ops.lowtide_sim.stats())
