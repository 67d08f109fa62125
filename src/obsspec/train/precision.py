"""In which type training multiplies matrices."""

from enum import StrEnum


class Precision(StrEnum):
    """AUTO: bfloat16 on a CPU with matrix instructions for it (4 times faster), float32 elsewhere."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
