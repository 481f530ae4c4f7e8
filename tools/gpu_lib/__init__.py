"""What tools/gpu_check is made of: standard library and torch only, since GPU machines have nothing else."""
