"""What the command `lowtide plan` takes of this machine's CPU for many nodes; it touches no device."""

import json
import zipfile

from figures import command_seconds
from on_card import MODELS, environment

LIMITS_S = {"smollm2_135m_prefill": 1.0, "blocks_1333x64": 10.0}


def measure(program):
    """A row for each model, without and with the search for a low cap."""
    rows = []
    for model, limit in LIMITS_S.items():
        archive = MODELS / f"{model}.pt2"
        for option in ([], ["--low-vram"]):
            command = [str(program.path), "plan", str(archive), *option]
            wall, cpu = command_seconds(command, env=environment(program.new_folder()))
            rows.append({
                "case": " ".join(["plan", *option, f"of {model}, {node_count(archive):,} nodes: CPU time"]),
                "lowtide_s": cpu,
                "wall_s": wall,
                "must_s": limit,
            })
    return rows


def node_count(archive):
    with zipfile.ZipFile(archive) as records:
        program = json.loads(records.read(f"{archive.stem}/models/model.json"))
    return len(program["graph_module"]["graph"]["nodes"])
