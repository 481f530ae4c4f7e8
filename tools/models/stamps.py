"""Remembers what was made from what, so that a second run makes only what is missing or outdated."""

import hashlib
import json
from pathlib import Path

PACKAGE = Path(__file__).parent
THIRD_PARTY = PACKAGE.parents[1] / "third_party"
NOT_DECISIVE = ("__main__.py", "catalogue.py", "stamps.py", "verify.py")  # these choose and check models, they do not shape them


def fingerprint(entry):
    """Hash of everything that decides how `entry`'s files look: shared code, its family's module, pinned versions."""
    sources = [p for p in sorted(PACKAGE.glob("*.py")) if p.name not in NOT_DECISIVE]
    sources += [PACKAGE / "families" / f"{entry.family}.py", *sorted(THIRD_PARTY.glob("requirements*.txt"))]
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def is_current(out, entry):
    """Whether the files of `entry` in `out` are complete and made by the present code."""
    try:
        stamp = json.loads(_stamp_path(out, entry).read_text())
    except (OSError, ValueError):
        return False
    if stamp["fingerprint"] != fingerprint(entry):
        return False
    return all((out / name).is_file() and (out / name).stat().st_size == size for name, size in stamp["files"].items())


def forget(out, entry):
    """Removes the stamp and the files it names."""
    path = _stamp_path(out, entry)
    if path.is_file():
        for name in json.loads(path.read_text())["files"]:
            (out / name).unlink(missing_ok=True)
        path.unlink()


def remember(out, entry, names):
    """Writes the stamp for the files `names` of `entry`; call it last."""
    path = _stamp_path(out, entry)
    path.parent.mkdir(exist_ok=True)
    files = {name: (out / name).stat().st_size for name in names}
    path.write_text(json.dumps({"fingerprint": fingerprint(entry), "files": files}, indent=1))


def _stamp_path(out, entry):
    return out / ".stamps" / f"{entry.name}.json"
