"""python -m varflash.compare: varflash beside every other attention that can be imported, on the same tensors in one run."""
