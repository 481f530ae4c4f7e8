"""Input and output files of the program."""

import shutil

from safetensors.numpy import load_file, save_file


def write_inputs(folder, jobs):
    """One file for each job: `jobs` maps file stems to {input name: array}. What was in the folder before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for stem, tensors in jobs.items():
        save_file(tensors, folder / f"{stem}.safetensors")


def read_output(folder, stem):
    """The only output tensor of one job."""
    (tensor,) = load_file(folder / f"{stem}.safetensors").values()
    return tensor
