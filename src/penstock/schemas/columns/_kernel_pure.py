"""The loops over the values of columns, in pure Python: see `kernel.Kernel`. The twin of `_kernel.pyx`."""

from penstock.schemas.columns._avro_decode_pure import decode_avro

__all__ = ["decode_avro"]
