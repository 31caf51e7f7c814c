"""The debugging course: each case is solved by a reference, and a wrong check is refused."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import course
from coursework import commands, debug
from coursework.answers.styles import IN_OTHER_STYLES
from coursework.debug import STYLES, Case, cases, figures, judge_check, judge_model, learn, template
from coursework.museum.cache_not_reordered import Steps as RecurrentSteps
from coursework.museum.decoding import Steps
from coursework.museum.exhibit import difference
from coursework.museum.losses import TARGETS
from coursework.progress import Progress
from transformer_blocks import SinusoidalPositionalEncoding
from transformer_blocks.inspection import check_search, check_soundness

X = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(4))
IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 6, 3]])
PADDED = torch.tensor([[2, 7, 1, 0, 0, 0]])
REAL = PADDED != 0
LOGITS = torch.randn(4, 5, 10, generator=torch.Generator().manual_seed(5))
WHOLE = [(LOGITS, TARGETS)]
close = partial(torch.allclose, atol=1e-4)
Check = Callable[[Any], object]


def is_causal(m: Any, x: Tensor, other: Tensor) -> bool:
    changed = torch.cat([x[:, :-1], other[:, -1:]], dim=1)
    return close(m(x)[:, :-1], m(changed)[:, :-1])


def ignores_padding(m: Any) -> bool:
    return close(m(X[:1], REAL)[:, :3], m(X[:1] * REAL[..., None], REAL)[:, :3])


def decodes(m: Any) -> object:
    return check_soundness(m, IDS, only="cache", new_step_model=lambda: Steps(m))


def depends_on_all(m: Any, x: Tensor) -> bool:
    changed = torch.cat([x[:, :1] + 1, x[:, 1:]], dim=1)
    return bool(((m(x) - m(changed)).abs().amax(-1) > 1e-5).all())


REFERENCES: dict[str, Check] = {
    "sentinel_beyond_float16": lambda m: m.half()(IDS).isfinite().all(),
    "table_that_is_no_buffer": lambda m: m.half()(X.half()).isfinite().all(),
    "table_left_on_the_first_device": lambda m: [m(X), m.half()(X.half())],
    "layers_in_a_list": lambda m: [n for n, _ in m.named_parameters() if "layers" in n],
    "inverted_padding_mask": ignores_padding,
    "padding_mask_over_queries": lambda m: close(
        m(PADDED, ~REAL)[:, :3], m(PADDED[:, :3], ~REAL[:, :3])
    ),
    "boolean_mask_added": ignores_padding,
    "masked_scores_near_zero": lambda m: is_causal(m, X, -X),
    "bidirectional_mask_in_decoder": lambda m: is_causal(m, IDS, IDS + 1),
    "fully_masked_row": lambda m: m(PADDED.flip(1), ~REAL.flip(1))[:, 3:].isfinite().all(),
    "mean_over_padding": lambda m: close(m(PADDED, REAL), m(PADDED[:, :3], REAL[:, :3])),
    "class_read_at_the_last_position": lambda m: close(m(PADDED), m(PADDED[:, :3])),
    "view_instead_of_transpose": lambda m: close(m(X)[:1], m(X[:1])),
    "dropout_in_evaluation": lambda m: torch.equal(m(IDS), m(IDS)),
    "softmax_over_queries": lambda m: close(m(X), F.scaled_dot_product_attention(*m.project(X))),
    "scale_of_all_heads": lambda m: close(m(X), F.scaled_dot_product_attention(*m.heads(X))),
    "heads_cut_without_transpose": lambda m: depends_on_all(m, X[:, :4]),
    "heads_joined_without_transpose": lambda m: is_causal(m, IDS[:, :4], IDS[:, :4] + 1),
    "key_heads_tiled": lambda m: close(
        m(X), partial(F.scaled_dot_product_attention, enable_gqa=True)(*m.heads(X))
    ),
    "copied_layers": lambda m: not close(m.layers[0].linear1.weight, m.layers[1].linear1.weight),
    "sinusoid_frequencies": lambda m: close(m(X), SinusoidalPositionalEncoding(16)(X)),
    "positions_along_the_batch": lambda m: not close(m(IDS).mean(1), m(IDS.flip(1)).mean(1)),
    "padding_in_the_denominator": lambda m: close(
        m(WHOLE), F.cross_entropy(LOGITS.flatten(0, 1), TARGETS.flatten(), ignore_index=0)
    ),
    "mean_of_micro_batch_means": lambda m: close(
        m(WHOLE), m([(LOGITS[:1], TARGETS[:1]), (LOGITS[1:], TARGETS[1:])])
    ),
    "smoothing_of_padding": lambda m: close(
        m(WHOLE), m([(LOGITS * (TARGETS != 0)[..., None], TARGETS)])
    ),
    "top_left_causal_mask": decodes,
    "positions_restart": decodes,
    "cache_not_reordered": lambda m: check_soundness(
        m, IDS, only="cache", new_step_model=lambda: RecurrentSteps(m)
    ),
    "rotary_angles_reused": decodes,
    "window_forgotten_in_steps": decodes,
    "beams_of_another_source": check_search,
    "beams_all_alike": check_search,
    "length_penalty_reversed": check_search,
    "ends_at_once": check_search,
}
"""For each exhibit, what is true of a right model."""
CASES = [*cases().values()]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.zfill(2))


def asserts(holds: Check) -> Check:
    def check(model: Any) -> None:
        assert holds(model)

    return check


def learner(case: Case, state: str, holds: Check) -> Any:
    """Stand for the module of a learner, whose model is broken or mended."""
    module = case.exhibit.module
    names = {"Model": state.title()} if hasattr(module, "Broken") else {"model": state}
    models = {name: getattr(module, of) for name, of in names.items()}
    return SimpleNamespace(check=asserts(holds), **models)


@every_case
def test_a_case_is_solved_by_its_reference_and_not_by_the_broken_model(case: Case) -> None:
    holds = REFERENCES[case.exhibit.name]
    assert list(judge_check(case, asserts(holds))) == []
    assert list(judge_model(case, learner(case, "mended", holds))) == []
    assert next(judge_model(case, learner(case, "broken", holds)), "")


@every_case
def test_the_learners_file_has_the_broken_code_and_does_not_reveal_the_fault(case: Case) -> None:
    text = template(case)
    names: dict[str, Any] = {}
    exec(compile(text, "case.py", "exec"), names)
    assert names.keys() & {"Model", "model"}
    with pytest.raises(NotImplementedError):
        names["check"](None)
    shown = difference(case.exhibit.module)
    wrong = [line[1:].strip() for line in shown.splitlines() if line.startswith("-    ")]
    statements = [line for line in wrong if not line.startswith(("#", '"""', "def "))]
    assert all(line in text for line in statements if "roken" not in line)
    docstring = getattr(getattr(case.exhibit.module, "Broken", None), "__doc__", "") or "the fault"
    for word in ("the fault", "mended", "broken", case.exhibit.title.lower(), docstring.lower()):
        assert word not in text.lower().replace("the broken model", "")


@every_case
def test_a_case_begins_with_figures_that_are_computed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug, "UPDATES", (1, 2, 3, 5))  # enough to differ
    shown = list(figures(case))
    assert shown
    if case.level in (1, 4):  # an error, or what only decoding shows
        assert shown[0].startswith("measured here: ")
    if case.level == 3 and len(shown) == 4:  # the losses of learning
        assert shown[2].split()[2:] != shown[3].split()[3:]


def test_there_are_at_least_24_cases_of_four_levels_each_with_three_hints() -> None:
    assert len({case.exhibit.name for case in CASES}) == len(CASES) >= 24
    levels = [case.level for case in CASES]
    assert levels == sorted(levels)
    assert {*levels} == {1, 2, 3, 4}
    for case in CASES[::9]:
        where, report, function = case.hints
        assert where == case.hint
        assert case.exhibit.found_by in report
        assert function.split("'")[1] in template(case)


def test_the_page_lists_the_symptom_the_cause_and_the_check_of_each_case() -> None:
    page = Path(course.__file__).parents[1] / "docs" / "howto" / "debug_a_transformer.md"
    rows = [line for line in page.read_text("utf-8").splitlines() if line.endswith("` |")]
    assert rows == [
        f"| {case.title} | {case.exhibit.title} | `{case.exhibit.found_by}` |" for case in CASES
    ]


def test_the_page_names_the_cases_of_each_chapter() -> None:
    page = Path(course.__file__).parents[1] / "docs" / "howto" / "debug_a_transformer.md"
    rows = re.findall(r"\(\.\./learn/(\w+)\.ipynb\) \| ([\d, ]+) \|", page.read_text("utf-8"))
    listed = {int(n): chapter for chapter, numbers in rows for n in numbers.split(",")}
    assert sorted(listed) == [int(case.name) for case in CASES]
    of_theme = {case.exhibit.theme: listed[int(case.name)] for case in CASES}
    assert all(listed[int(case.name)] == of_theme[case.exhibit.theme] for case in CASES)
    for chapter in {*listed.values()}:
        text = (page.parents[1] / "learn" / f"{chapter}.py").read_text("utf-8")
        (number,) = re.findall(r"course\.py debug (\d+)", text.partition("# ## Where to go")[2])
        assert listed[int(number)] == chapter


SOFTMAX = next(case for case in CASES if case.exhibit.name == "softmax_over_queries")
STORED = SOFTMAX.make("mended", 12)(X).detach()
WRONG: dict[str, Check] = {
    "always false": lambda m: False,
    "always true": lambda m: True,
    "an error": lambda m: m.no_such_name,
    "one broken model": lambda m: not close(m(X), SOFTMAX.make("broken", 11)(X)),
    "only this seed": lambda m: close(m(X), SOFTMAX.make("mended", 12)(X)),
    "stored numbers": lambda m: close(m(X), STORED),
    "a stored number": lambda m: abs(float(m(X)[0, 0, 0]) - float(STORED[0, 0, 0])) < 1e-3,
    "stored numbers, rounded": lambda m: close(m(X).round(), STORED.round()),
    "a stored weight": lambda m: m.query_key_value.weight[0, 0] == 0.25,
    "the name of the class": lambda m: type(m).__name__ != "Broken",
    "another property": lambda m: torch.equal(m(X), m(X)),
    "finite outputs": lambda m: m(X).isfinite().all(),
    "a wrong expectation": lambda m: close(m(X), F.scaled_dot_product_attention(X, X, X)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_check_is_refused(name: str) -> None:
    assert list(judge_check(SOFTMAX, asserts(WRONG[name])))


def test_a_check_that_demands_one_way_of_rounding_is_refused() -> None:
    def exact(m: Any) -> bool:
        query, key, value = m.project(X)
        return torch.equal(m(X), (query @ key.mT / 4).softmax(2) @ value)

    problems = list(judge_check(SOFTMAX, asserts(exact)))
    assert problems
    assert all("are others" not in each for each in problems)


def test_a_model_that_raises_or_computes_something_else_is_refused() -> None:
    class Zero(SOFTMAX.exhibit.module.Mended):  # type: ignore[misc, name-defined]
        def forward(self, x: Tensor) -> Tensor:
            return 0 * x

    (case,) = (case for case in CASES if case.exhibit.name == "masked_scores_near_zero")
    *_, problem = judge_model(case, SimpleNamespace(Model=Zero))
    assert "a right model computes something else: at row 0, position 0: " in problem
    (problem,) = judge_model(case, SimpleNamespace(Model=lambda: [][1]))
    assert problem.startswith("it raises IndexError at test_debug.py:")


def test_a_model_with_heads_cut_wrongly_learns_less_than_a_right_one() -> None:
    (case,) = (case for case in CASES if case.exhibit.name == "heads_cut_without_transpose")
    assert learn(case, "broken")[-1] > 2 * learn(case, "mended")[-1]


@pytest.mark.parametrize(
    ("hints", "check", "model", "points"),
    [(0, 1, 1, 10), (1, 1, 1, 8), (3, 1, 1, 4), (0, 1, 0, 5), (3, 0, 1, 1), (3, 0, 0, 0)],
)
def test_a_hint_costs_two_points_and_leaves_one_for_each_part(
    hints: int, check: int, model: int, points: int, tmp_path: Path
) -> None:
    (tmp_path / "progress.new").symlink_to(tmp_path / "elsewhere")
    Progress(tmp_path).add(SOFTMAX, {"hints": hints})
    Progress(tmp_path).add(SOFTMAX, {"check": check, "model": model})
    assert Progress(tmp_path).points(SOFTMAX) == points
    commands.give_hint("case", SOFTMAX, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]  # no link is followed
    now = hints if check and model else min(hints + 1, 3)
    assert Progress(tmp_path).of(SOFTMAX)["hints"] == now


def test_the_other_styles_compute_what_torch_computes() -> None:
    weight = torch.randn(10, 16)
    inputs = {
        "scaled_dot_product_attention": (X, 2 * X, X + 1, REAL),
        "softmax": (X, -1),
        "log_softmax": (X, -1),
        "linear": (X, weight, weight[:, 0]),
        "embedding": (IDS, weight),
    }
    styles = dict(pair for style in IN_OTHER_STYLES.values() for pair in style.items())
    assert styles.keys() == inputs.keys()
    for name, arguments in inputs.items():
        assert close(styles[name](*arguments), getattr(F, name)(*arguments))
    causal = partial(F.scaled_dot_product_attention, X, X, X, is_causal=True)
    with STYLES["attention is written with einsum"]:
        written = causal()
    assert close(written, causal())
    assert not torch.equal(written, F.scaled_dot_product_attention(X, X, X))


def test_a_learner_begins_takes_hints_and_solves_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        status = course.main([*words])
        return status, capsys.readouterr().out

    number = SOFTMAX.name
    assert "Level 4: only in decoding or in batches" in run("debug")[1]
    status, printed = run("debug", number)
    assert status == 1  # what only begins is not solved
    assert "a right model" in printed
    assert "softmax" not in printed
    assert run("debug", number)[0] == 1
    for hint in ("Hint 1 of 3: Of which rows", "Hint 2 of 3: The library's check 'equivalence'"):
        assert hint in run("debug", number, "--hint")[1]
    path = tmp_path / "my_transformer" / f"case_{number}.py"
    body = "x = torch.randn(2, 3, 16)\n    y = F.scaled_dot_product_attention(*model.project(x))\n"
    text = path.read_text("utf-8").replace("dim=1", "dim=2")
    test = f"{body}    assert torch.allclose(model(x), y, atol=1e-5)"
    path.write_text(text, "utf-8")
    status, printed = run("debug", number)
    assert status == 1
    assert "check: wrong" in printed
    assert "model: right" in printed
    assert "(not solved yet, 1 points)" in " ".join(run("debug")[1].split())
    path.write_text(text.replace("raise NotImplementedError", test), "utf-8")
    status, printed = run("debug", number)
    assert status == 0
    assert "Solved: 6 of 10 points.\nIt was: A softmax over the queries." in printed
    assert SOFTMAX.exhibit.source in printed
    known = json.loads((tmp_path / "my_transformer" / "progress.json").read_text("utf-8"))
    assert known == {number: {"check": 1, "model": 1, "hints": 2}}
    assert "Hint 3 of 3: The fault is in 'normalise'" in run("debug", number, "--hint")[1]
    assert f"cases: 1 of {len(CASES)} solved, 6 of {10 * len(CASES)} points" in run("status")[1]
    path.write_text("import os; os._exit(3)\n", "utf-8")
    assert "ends its process, with the exit status 3" in run("debug", number)[1]
    assert course.main(["debug", "99"]) == 2
