"""Training tests run op by op and on one thread: compiling and thread barriers take longer than the tests."""

import os

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
