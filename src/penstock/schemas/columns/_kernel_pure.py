"""The loops over the values of columns, in pure Python: see `kernel.Kernel`. The twin of `_kernel.pyx`."""

from penstock.schemas.columns._avro_decode_pure import decode_avro
from penstock.schemas.columns._avro_encode_pure import encode_avro
from penstock.schemas.columns._protobuf_decode_pure import decode_protobuf
from penstock.schemas.columns._protobuf_encode_pure import encode_protobuf

__all__ = ["decode_avro", "decode_protobuf", "encode_avro", "encode_protobuf"]
