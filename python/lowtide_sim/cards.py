"""Descriptions of cards, as `--device sim:CARD` of the program reads them."""

import json
import re
import sys
from pathlib import Path

from .errors import SimError

_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = [
    _PACKAGE.parents[1] / "configs" / "cards",  # in the source tree
    Path(sys.prefix) / "share" / "lowtide" / "cards",
    Path("/usr/local/share/lowtide/cards"),
    Path("/usr/share/lowtide/cards"),
]
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def card_json(card):
    """The complete JSON text of a card: a dict, JSON text, a name, a file or a size."""
    if isinstance(card, dict):
        return json.dumps(card)
    text = str(card)
    if text.lstrip().startswith("{"):
        return _checked(text, "the card")
    file = _find(text)
    if file is not None:
        return _checked(file.read_text(encoding="utf-8"), f"the card '{file}'")
    if text[:1].isdigit():
        default = _find("default")
        base = json.loads(default.read_text(encoding="utf-8")) if default else {}  # the library knows the default card, too
        return json.dumps({**base, "name": text, "total_bytes": _parse_size(text)})
    raise SimError(f"no simulated card '{text}': use a name ({', '.join(names())}), a file, a size such as 6GiB, or a dict")


def names():
    """The cards that come along."""
    return sorted({file.stem for folder in _FOLDERS for file in folder.glob("*.json")})


def _find(text):
    named = [folder / f"{text}.json" for folder in _FOLDERS] if "/" not in text else []
    return next((file for file in [*named, Path(text)] if file.is_file()), None)


def _checked(text, what):
    """The library's own message about bad JSON does not know the file."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except ValueError:
        pass
    raise SimError(f"{what} is no JSON object: see configs/cards/default.json for the keys")


def _parse_size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise SimError(f"size '{text}' is no number with KiB, MiB, GiB, KB, MB or GB, such as 6GiB")
    return int(float(match[1]) * _UNITS[match[2]]) if "." in match[1] else int(match[1]) * _UNITS[match[2]]
