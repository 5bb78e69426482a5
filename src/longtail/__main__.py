"""`python -m longtail`; with several processes, `torchrun --nproc-per-node 2 -m longtail train ...`."""

from longtail.cli.main import run

if __name__ == "__main__":  # worker processes may import this file again
    run()
