"""What goes wrong at the door, in one line."""


class SimError(RuntimeError):
    """Says what is wrong and what to do about it."""
