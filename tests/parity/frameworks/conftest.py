"""`rein serve` for the tests with real clients, on the files that tests/cli/serving.py makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KEY = "a secret"


class Served:
    """Starts servers on the same files."""

    def __init__(self, directory):
        sys.path.insert(0, str(ROOT / "tests/cli"))
        import serving

        alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        subprocess.run(["make", "build/rein"], cwd=ROOT, env=alone, capture_output=True, check=True)
        self.serving, self.directory = serving, directory
        serving.make_files(ROOT / "build/rein", directory)

    def start(self, *arguments):
        server = self.serving.Server(
            ROOT / "build/rein",
            "one",
            f"--adapter=caller={self.serving.CALLER}",
            *arguments,
            directory=self.directory,
            environment={"REIN_API_KEY": KEY},
        )
        server.url, server.key = f"http://127.0.0.1:{server.port}", KEY
        return server


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    return Served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(served):
    with served.start() as shared:
        yield shared
