"""A run in a notebook, by nbclient and a kernel of its own: the progress is shown, and results are tables."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

MODEL = Path(__file__).parents[3] / "models/sums"
RUN = f"""import rein
run = rein.run("run", model={str(MODEL)!r}, task="sums", preset="rloo", learning_rate=1e-3, steps=2, prompts=2,
               samples=2, max_tokens=8, eval_prompts=2)
run"""


def test_a_run_in_a_notebook(tmp_path):
    cells = [RUN, "run.last", "rein.report('run')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for cell in notebook.cells:
        shown = [output.data for output in cell.outputs if output.output_type == "execute_result"]
        assert len(shown) == 1 and "<" in shown[0]["text/html"]
