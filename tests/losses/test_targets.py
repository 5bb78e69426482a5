"""What a loss refuses, and that a refusal says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from longtail.losses import CrossEntropy, Mixed


@pytest.mark.parametrize(
    ("scores", "target", "error", "said"),
    [
        (torch.zeros(4), torch.zeros(4).long(), ValueError, "scores must have shape"),
        (torch.zeros(2, 3, 4), torch.zeros(2).long(), ValueError, "scores must have shape"),
        (torch.zeros(2, 3).long(), torch.zeros(2).long(), TypeError, "floating point"),
        (torch.zeros(0, 3), torch.zeros(0).long(), ValueError, "empty"),
        (torch.zeros(2, 3), torch.zeros(3).long(), ValueError, r"shape \[2\]"),
        (torch.zeros(2, 3), torch.zeros(2, 1).long(), ValueError, r"shape \[2\]"),
        (torch.zeros(2, 3), torch.zeros(2).bool(), TypeError, "integers"),
        (torch.zeros(2, 3), torch.zeros(2), ValueError, "class indices are integers"),
        (torch.zeros(2, 3), torch.zeros(2, 4), ValueError, "probabilities of shape"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), ValueError, r"target 3 is not one of the classes 0\.\.2"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), ValueError, "target -1"),
        (torch.zeros(2, 3), Mixed(torch.tensor([0, 3]), torch.tensor([0, 1]), 0.5), ValueError, "target 3"),
        (torch.zeros(2, 3), Mixed(torch.tensor([0, 1]), torch.tensor([0]), 0.5), ValueError, r"shape \[2\]"),
        (
            torch.zeros(2, 3),
            Mixed(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.ones(3)),
            ValueError,
            "weight of Mixed",
        ),
        (torch.zeros(2, 3), Mixed(torch.zeros(2), torch.zeros(2), 0.5), TypeError, "integers"),
        (torch.zeros(2, 3), Mixed(torch.tensor([0, 1]), torch.tensor([0, 1]), 1.5), ValueError, "1.5"),
        (torch.zeros(2, 3), Mixed(torch.tensor([0, 1]), torch.tensor([0, 1]), -0.1), ValueError, "-0.1"),
        *(
            (torch.zeros(2, 3), Mixed(torch.tensor([0, 1]), torch.tensor([0, 1]), weight), ValueError, said)
            for weight, said in (
                (torch.tensor(1.5), "got 1.5"),
                (torch.tensor([0.5, -0.25]), "got -0.25"),
                (torch.tensor(torch.nan), "got nan"),
            )
        ),
        *(
            (torch.zeros(2, 3), Mixed(torch.tensor([0, 1]), torch.tensor([0, 1]), weight), TypeError, said)
            for weight, said in (("0.5", "got str"), (None, "got NoneType"), (np.ones(2), "got ndarray"))
        ),
        ([[0.0, 1.0]], torch.tensor([0]), TypeError, "scores must be a tensor.*got list"),
        (np.zeros((2, 3)), torch.tensor([0, 1]), TypeError, "scores must be a tensor.*got ndarray"),
        (torch.zeros(2, 3), Mixed([0, 1], torch.tensor([0, 1]), 0.5), TypeError, "two of them.*not list"),
        (torch.zeros(2, 3), [0, 1], TypeError, "tensor of class indices.*not list"),
        (torch.zeros(2, 3), np.array([0, 1]), TypeError, "not ndarray"),
        (torch.zeros(2, 3), (torch.tensor([0, 1]),) * 2 + (0.5,), TypeError, "Mixed.*not tuple"),
        (torch.zeros(2, 3), torch.full((2, 3), 0.5), ValueError, "sum to 1"),
        (torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 0.0], [1.5, -0.5, 0.0]]), ValueError, "not be negative"),
        (torch.zeros(2, 3), torch.full((2, 3), torch.nan), ValueError, "sum to 1"),
    ],
)
def test_what_cannot_be_learned_from_is_an_error(scores, target, error, said):
    with pytest.raises(error, match=said):
        CrossEntropy()(scores, target)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_any_whole_number_type_will_do(dtype):
    scores = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    made = CrossEntropy()(scores, torch.tensor([1, 0], dtype=dtype))
    torch.testing.assert_close(made, torch.nn.functional.cross_entropy(scores, torch.tensor([1, 0])))


def test_sixteen_bit_scores_are_worked_in_float32():
    scores = torch.tensor([[0.1, 0.2], [0.3, 0.1]])
    for dtype in (torch.float16, torch.bfloat16):
        made = CrossEntropy(30.0)(scores.to(dtype), torch.tensor([1, 0]))
        expected = torch.nn.functional.cross_entropy(30 * scores.to(dtype).float(), torch.tensor([1, 0]))
        assert made.dtype == torch.float32 and float(made) == pytest.approx(float(expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_probabilities_may_be_rounded_to_sixteen_bits(dtype):
    scores = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    matrix = torch.softmax(scores, 1).to(dtype)
    expected = torch.nn.functional.cross_entropy(scores, matrix.float())
    torch.testing.assert_close(CrossEntropy()(scores, matrix), expected)


@pytest.mark.parametrize("value", [30, np.int64(30), np.float32(30), np.float64(30)])
def test_any_real_number_is_a_number(value):
    loss = CrossEntropy(scale=value)
    assert type(loss.scale) is float and loss.scale == 30


@pytest.mark.parametrize("value", ["30", None, [30.0], torch.ones(2)])
def test_what_is_no_number_is_named(value):
    with pytest.raises(TypeError, match="scale must be a number"):
        CrossEntropy(scale=value)
