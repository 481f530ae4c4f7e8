"""Copies what the build takes from Debian packages into one small folder, for machines without them."""

import shutil
from pathlib import Path

INCLUDE = Path("/usr/include")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
# Headers by their path below /usr/include; those of the architecture's folder are named from there.
HEADERS = ["doctest", "CLI", "nlohmann", "openssl", "zip.h", "zipconf.h"]
ARCHITECTURE_HEADERS = ["openssl", "zip.h", "zipconf.h"]
# What the program links to, and what those need.
SHARED = ["libzip.so.4", "libcrypto.so.3", "libbz2.so.1.0", "libz.so.1"]


def fill(folder):
    """Fills `folder` anew; returns one line about it."""
    shutil.rmtree(folder, ignore_errors=True)
    include, lib = folder / "include", folder / "lib"
    include.mkdir(parents=True)
    lib.mkdir()
    for base, names in ((INCLUDE, HEADERS), (INCLUDE / "x86_64-linux-gnu", ARCHITECTURE_HEADERS)):
        for name in names:
            source = base / name
            if source.is_dir():
                shutil.copytree(source, include / name, dirs_exist_ok=True)
            elif source.exists():
                shutil.copyfile(source, include / name)
    for name in SHARED:
        source = LIBRARIES / name
        if not source.exists():
            source = Path("/lib/x86_64-linux-gnu") / name
        shutil.copyfile(source, lib / name)  # follows links: the file carries the name that programs ask for
    missing = [name for name in HEADERS if not (include / name).exists()]
    if missing:
        raise SystemExit(f"gpu_check: error: {', '.join(missing)} missing below {INCLUDE}: run tools/build first")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder} holds {size / 1e6:.1f} MB of Debian's dependencies"
