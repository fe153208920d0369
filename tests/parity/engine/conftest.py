"""Real models are compared only in `make parity-all`."""

import os

collect_ignore = [] if os.environ.get("REIN_PARITY_ALL") else ["test_real_models.py"]
