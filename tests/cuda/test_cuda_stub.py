"""The stub CUDA driver under the real cuda.core, in both modes; and under ThreadSanitizer."""

import subprocess
from pathlib import Path

import pytest

from anabranch_testing.corpus import is_required
from anabranch_testing.cuda_stub import Mode, build, run_checks, what_is_missing

HERE = Path(__file__).parent
CHECKS = sorted((HERE / "checks").glob("*_checks.py"))
MODES: tuple[Mode, ...] = ("lazy", "eager")


@pytest.fixture(autouse=True)
def _buildable() -> None:
    missing = what_is_missing()
    if missing and not is_required("cuda-stub"):
        pytest.skip(missing)
    assert not missing


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", CHECKS, ids=lambda path: path.stem)
def test_checks_pass_on_the_stub(path: Path, mode: Mode) -> None:
    devices = 2 if path.stem == "device_checks" else 1
    assert " passed" in run_checks(path, mode, devices=devices)


@pytest.mark.parametrize("mode", MODES)
def test_the_contract_of_real_drivers_holds_on_the_stub(mode: Mode) -> None:
    assert " passed" in run_checks(HERE / "contract" / "driver_contract.py", mode)


def test_what_fails_on_the_stub_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def test_it():\n    assert 1 == 2\n")
    with pytest.raises(RuntimeError, match="assert 1 == 2"):
        run_checks(tmp_path / "failing.py", "lazy")


def test_threads_do_not_race() -> None:
    folder = build("replay_threads_test", sanitize="thread")
    ended = subprocess.run(
        [folder / "replay_threads_test"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "WARNING: ThreadSanitizer" not in ended.stderr
