from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longtail.recipes import catalogue
from longtail.report import describe, notes
from longtail.report.reading import RunFiles, read
from longtail.report.summary import Figure, entries, marks

MakeRun = Callable[..., Path]


def test_runs_that_differ_in_the_seed_alone_are_one_entry(make_run: MakeRun) -> None:
    runs = [
        read(make_run("a", seed=0)),
        read(make_run("b", seed=3, hits=(10, 6, 4, 2))),
        read(make_run("c", loss={"kind": "cross_entropy"})),
    ]
    first, second = entries(runs)
    assert first.seeds == (0, 3) and second.seeds == (0,)
    figure = first.figure("top1")
    assert figure is not None and figure.mean == 52.5
    assert figure.spread == pytest.approx(12.5**0.5)  # 50 and 55: variance 12.5 with n - 1
    assert figure.text(1) == "52.5 ± 3.5"
    assert second.figure("top1") == Figure(50.0, None, 1)


def test_an_option_that_an_older_version_did_not_know_parts_no_seeds(make_run: MakeRun) -> None:
    """Written as null where it is left unused, it is the same recipe; where it is used, it is another."""
    old, unused, used = make_run("a", seed=0), make_run("b", seed=1), make_run("c", seed=2)
    for run, value in ((unused, None), (used, {"kind": "muon"})):
        recipe = json.loads((run / "recipe.json").read_text())
        for stage in recipe["stages"]:
            stage["optimizer"]["filters"] = value
        (run / "recipe.json").write_text(json.dumps(recipe))
    assert [entry.seeds for entry in entries([read(old), read(unused), read(used)])] == [(0, 1), (2,)]


def test_a_folder_given_twice_is_one_run(make_run: MakeRun) -> None:
    path = make_run("a")
    (entry,) = entries([read(path), read(path / ".." / "a")])
    assert entry.seeds == (0,)
    figure = entry.figure("top1")
    assert figure is not None and figure.spread is None


def test_a_copy_is_no_replicate(make_run: MakeRun) -> None:
    """The same recipe and seed in another folder, finished or not, whatever it found."""
    begun = make_run("begun", leave_out=("final.json",))
    runs = [read(begun), *(read(make_run(name, seed=seed)) for name, seed in (("a", 0), ("b", 1), ("c", 0)))]
    (entry,) = entries(runs)
    assert [run.path.name for run in entry.runs] == ["a", "b"] and entry.seeds == (0, 1)
    assert [run.path.name for run in entry.copies] == ["begun", "c"]
    figure = entry.figure("top1")
    assert figure is not None and figure.number == 2
    assert [Path(note.split(": ")[0]).name for note in notes.of_entry(entry)] == ["begun", "c"]


def test_other_counts_are_another_entry(make_run: MakeRun) -> None:
    runs = [read(make_run("a")), read(make_run("b", seed=1, counts=(200, 100, 20, 6)))]
    assert len(entries(runs)) == 2


def test_two_recipes_of_one_name_are_told_apart_by_their_folders(make_run: MakeRun) -> None:
    found = entries([read(make_run("wide")), read(make_run("narrow", recipe={"precision": "bf16"}))])
    assert [entry.title for entry in found] == ["GCL-A (wide)", "GCL-A (narrow)"]


def test_two_recipes_of_one_name_are_told_apart_by_what_differs(make_run: MakeRun) -> None:
    def titles(*changes: dict[str, object]) -> list[str]:
        runs = []
        for change in changes:
            run = read(make_run(f"r{next(number)}", loss={"kind": "focal"}))
            first, second = run.recipe["stages"]
            recipe = {**run.recipe, "stages": [{**first, **change}, second]}
            runs.append(RunFiles(run.path, recipe))
        return [entry.title for entry in entries(runs)]

    number = iter(range(100))
    assert titles({}, {"mixing": None}) == ["digits.gcl, mixup", "digits.gcl, no mixing"]
    assert titles({}, {"epochs": 9}) == ["digits.gcl, 4 + 2 epochs", "digits.gcl, 9 + 2 epochs"]
    rule = {"sampling": {"rule": "square_root"}}
    assert titles({}, rule) == ["digits.gcl, instance sampling", "digits.gcl, square root sampling"]
    for change in (rule | {"epochs": 9}, {"trains": ["head"]}):  # two things, or one that is long to say
        assert all(title.startswith("digits.gcl (r") for title in titles({}, change))


def test_the_best_epoch_is_kept_apart_from_the_headline(make_run: MakeRun) -> None:
    (entry,) = entries([read(make_run())])
    best, last = entry.figure("top1", "best"), entry.figure("top1")
    assert best is not None and last is not None and (best.mean, last.mean) == (51.0, 50.0)


def test_an_empty_group_is_no_figure(make_run: MakeRun) -> None:
    (entry,) = entries([read(make_run(counts=(500, 400, 300, 200)))])
    assert entry.figure("few") is None and entry.figure("many") is not None


def test_marks_treat_equal_prints_as_equal() -> None:
    figures = [
        Figure(50.001, None, 1),
        Figure(50.0, None, 1),
        None,
        Figure(49.0, None, 1),
        Figure(1.0, None, 1),
    ]
    assert marks(figures) == ["best", "best", "", "second", ""]
    assert marks(figures, lower=True) == ["", "", "", "second", "best"]
    assert marks([Figure(1.0, None, 1)]) == [""]
    assert marks([Figure(1.001, None, 1), None, Figure(1.0, None, 1)]) == ["", "", ""], (
        "all tie: nobody leads"
    )


def test_one_plain_sentence_says_what_a_run_is(make_run: MakeRun) -> None:
    run = read(make_run())
    said = describe.sentence(run.recipe, run.data, run.last, (0,))
    assert said == (
        "GCL-A with ResNet-20, trained in two stages of 4 + 2 epochs on handwritten digits, 40 to 1 (325 "
        "training images of 4 classes, seed 0). After the last epoch it names 50.0\u00a0% of the test images "
        "right: 90.0\u00a0% on many-shot classes, 60.0\u00a0% on medium-shot classes, "
        "25.0\u00a0% on few-shot classes."
    )
    assert describe.sentence(run.recipe, run.data, {}, (0,)).endswith("no evaluation has been written yet.")


def test_a_method_outside_the_papers_tables_has_its_usual_name(make_run: MakeRun) -> None:
    run = make_run(recipe={"name": "baselines.ldam"}, loss={"kind": "ldam"})
    assert describe.method(read(run).recipe) == "LDAM"
    assert set(describe.METHODS) <= set(catalogue.functions(("baselines",)))
