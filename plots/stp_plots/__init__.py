"""What the programs of plots/ share: `read` records, `judge` them, `draw` them, show them on a `page`; each uses only those before it."""

import os

# Matrices are small here: further threads of BLAS would only wait, on processors that others need. numpy reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
