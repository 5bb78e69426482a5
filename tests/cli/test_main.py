"""Help, usage errors, exit codes: what every command has in common."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longtail import errors

PROGRAM = [sys.executable, "-c", "from longtail.cli.main import run; run()"]
COMMANDS = [
    ("train",), ("retrain",), ("eval",), ("predict",), ("compare",), ("table",), ("report",), ("figure",),
    ("features",), ("verify",), ("doctor",), ("recipes",), ("recipes", "list"), ("recipes", "show"),
    ("data",), ("data", "inspect"), ("data", "make-lt"),
]  # fmt: skip


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Makes `longtail recipes` raise."""
    from longtail.recipes import catalogue

    def set_error(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(catalogue, "functions", fail)

    return set_error


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_every_command_explains_itself(command, words) -> None:
    outcome = command(*words, "--help")
    assert outcome.code == 0 and outcome.err == ""
    assert outcome.out.startswith(f"Usage: {' '.join(('longtail', *words))}")


def test_the_list_of_commands_is_whole(command) -> None:
    out = command("--help").out
    listed = out.split("Commands:\n")[1]
    assert {line.split()[0] for line in listed.splitlines()} == {words[0] for words in COMMANDS}
    assert "..." not in listed, "each summary fits on its line"


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from longtail.cli.main import main\n"
        f"for words in {[list(words) for words in COMMANDS]!r}: main([*words, '--help'])\n"
        "heavy = {'torch', 'numpy', 'longtail.recipe', 'matplotlib', 'rich', 'PIL', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_help_is_quick() -> None:
    """Processor time, since the machine may be busy; the benchmark measures wall time against 0.3 s."""
    before = os.times()
    subprocess.run([*PROGRAM, "train", "--help"], check=True, capture_output=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 0.8


def test_without_a_command_the_help_comes_and_the_code_says_usage(command) -> None:
    outcome = command()
    assert outcome.code == 2 and outcome.out.startswith("Usage: longtail") and outcome.err == ""


def test_version(command) -> None:
    import longtail

    assert command("--version") == (0, f"longtail {longtail.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("trian",), "did you mean 'train'"),
        (("train", "cifar.gcl", "--ou", "x"), "--out"),
        (("train", "cifar.gcl"), "'--out'"),
        (("train",), "recipe"),
        (("eval",), "run"),
        (("data",), "missing command"),
        (("data", "make_lt", "x"), "did you mean 'make-lt'"),
        (("data", "inspct", "x"), "did you mean 'inspect'"),
        (("data", "make-lt", "digits.gcl", "--out", "gone/x.json"), "no folder gone"),
        (("data", "zzzz"), "there is no recipe zzzz"),
        (("recipes", "shwo"), "did you mean 'show'"),
        (("predict", "run", "x.png", "--top", "-1"), "--top"),
        (("data", "make-lt", "digits.gcl", "--out", "x.json", "--ratio", "0.5"), "--ratio"),
        (("data", "make-lt", "digits.gcl", "--out", "x.json", "--ratio", "nan"), "--ratio"),
        (("train", "cifr.gcl", "--out", "x"), "did you mean cifar.gcl?"),
        (("train", "cifar.gcl", "clases=10", "--out", "x"), "did you mean classes?"),
        (("train", "cifar.gcl", "--out", "x", "--set", "stages.1.epoch=1"), "did you mean epochs?"),
        (("train", "gone.json", "--out", "x"), "gone.json"),
        (("eval", "x", "--split", "train"), "test and held_out"),
        (("report", "x", "--out", "page.pdf"), ".html"),
        (("table", "x", "--format", "latx"), "did you mean latex?"),
        (("predict", "x", "a.png", "--out", "a.txt"), ".csv or .json"),
        (("verify", "no-such-run"), "no-such-run"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_and_code_2(refused, words, expected, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refused(2, *words).replace("Did", "did")
    assert list(tmp_path.iterdir()) == [], "and nothing is written"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.UsageError("the message"), 2, "error[E200]: the message"),
        (errors.DataError("the message", number=310), 3, "error[E310]: the message"),
        (errors.ModelFileError("the message"), 4, "error[E400]: the message"),
        (errors.MachineError("the message"), 5, "error[E500]: the message"),
        (errors.NumericsError("the message"), 6, "error[E600]: the message"),
        (errors.BusyError("the message"), 7, "error[E701]: the message"),
        (MemoryError(), 5, "error[E510]: the memory is exhausted"),
        (PermissionError(13, "Permission denied", "a.png"), 5, "error[E509]: permission denied: a.png"),
        (errors.Stopped("stopped; to go on: x", signal_number=15), 143, "stopped; to go on: x"),
        (errors.Stopped("stopped; to go on: x", signal_number=2), 130, "stopped; to go on: x"),
        (KeyboardInterrupt(), 130, "stopped by SIGINT"),
    ],
)  # fmt: skip
def test_each_kind_of_failure_has_its_code_and_line(command, failing, error, code, line) -> None:
    failing(error)
    outcome = command("recipes")
    assert outcome.code == code
    assert outcome.err.startswith(line) and outcome.err.count("\n") == 1


def test_memory_that_is_exhausted_is_no_bug(command, failing) -> None:
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    failing(caught.value)
    outcome = command("recipes")
    assert outcome.code == 5 and outcome.err.startswith("error[E510]: the memory is exhausted")


def test_a_message_from_outside_cannot_paint_the_terminal(command, failing) -> None:
    failing(errors.DataError("class \x1b[31mred\u202e\nerror[E999]: forged"))
    assert command("recipes").err == "error[E300]: class [31mred error[E999]: forged\n"


def test_a_long_message_keeps_its_beginning_and_its_advice(command, failing) -> None:
    failing(errors.DataError(f"begin {'x' * 5000} do this"))
    err = command("recipes").err
    assert err.startswith("error[E300]: begin") and err.endswith("do this\n") and len(err) < 330


def test_a_broken_pipe_is_quiet(command, failing) -> None:
    failing(BrokenPipeError())
    outcome = command("recipes")
    assert (outcome.code, outcome.err) == (141, "")


def test_debug_shows_the_traceback_too(command, failing) -> None:
    failing(errors.DataError("the message"))
    outcome = command("--debug", "recipes")
    assert outcome.code == 3
    assert "Traceback" in outcome.err and outcome.err.endswith("error[E300]: the message\n")


def test_a_bug_leaves_one_line_and_a_crash_file(refused, failing, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failing(ZeroDivisionError("what was\ndivided"))
    line = refused(70, "recipes")
    found = re.search(r"internal error, ZeroDivisionError: what was divided; details in (\S+);", line)
    assert found is not None, line
    text = Path(found[1]).read_text()
    assert "Traceback" in text and "['recipes']" in text and "longtail " in text


def test_a_crash_file_goes_into_the_run_folder(refused, replaced, tmp_path) -> None:
    folder = tmp_path / "run"

    def train(recipe: object, **rest: object) -> None:
        folder.mkdir()
        (folder / "recipe.json").write_text("{}")
        raise AssertionError("cannot be")

    replaced("longtail.engine.fit", train=train)
    refused(70, "train", "digits.gcl", "--out", folder)
    assert "cannot be" in (folder / "crash.txt").read_text()


def test_a_crash_before_the_run_exists_does_not_block_its_folder(
    refused, replaced, tmp_path, monkeypatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    replaced("longtail.engine.fit")  # importing `train` from it fails
    (tmp_path / "run").mkdir()
    refused(70, "train", "digits.gcl", "--out", tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_other_processes_of_a_run_do_not_repeat_usage_errors(command, failing, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    failing(errors.UsageError("the same everywhere"))
    assert command("recipes") == (2, "", "")
    failing(errors.DataError("only this one saw it"))
    assert command("recipes") == (3, "", "error[E300]: process 1: only this one saw it\n")


def test_sigterm_before_the_loop_ends_with_its_code() -> None:
    code = (
        "import os, signal, longtail.recipes.catalogue as c\n"
        "c.functions = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from longtail.cli.main import run; import sys; sys.argv = ['longtail', 'recipes']; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "stopped by SIGTERM\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.Popen([*PROGRAM, "recipes"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    _, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (141, "")


def test_an_ascii_terminal_gets_escapes_instead_of_an_error(tmp_path) -> None:
    done = subprocess.run(
        [*PROGRAM, "recipes", "show", "café"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert done.returncode == 2 and "caf\\xe9" in done.stderr and done.stderr.count("\n") == 1
