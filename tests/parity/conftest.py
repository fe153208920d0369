"""Repeatable by default: the same examples on every machine. REIN_PARITY_EXAMPLES=500 draws more,
REIN_PARITY_RANDOM=1 other ones."""

import os
import sys
import warnings
from pathlib import Path

from hypothesis import HealthCheck, configuration, settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
configuration.set_hypothesis_home_dir(HERE.parents[1] / "build-parity" / "hypothesis")  # not beside the sources
warnings.filterwarnings("ignore", category=DeprecationWarning)

settings.register_profile(
    "parity",
    deadline=None,
    database=None,
    print_blob=False,
    derandomize=not os.environ.get("REIN_PARITY_RANDOM"),
    max_examples=int(os.environ.get("REIN_PARITY_EXAMPLES", "15")),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("parity")
