"""The float64 vectors of a loss follow the device, keep their digits and stay out of checkpoints."""

from __future__ import annotations

import copy

import torch
from torch import nn

from longtail.losses.perclass import PerClass


def test_half_and_float_leave_the_digits_alone():
    holder = nn.Sequential(PerClass(torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)))
    for cast in (holder.half, holder.float, holder.bfloat16, lambda: holder.to(torch.float16)):
        cast()
        assert holder[0].values.tolist() == [1 / 3, 2 / 3]


def test_it_follows_the_device_and_answers_in_the_scores_dtype():
    vector = PerClass(torch.tensor([0.5, 1.0]))
    assert vector(torch.zeros(1, dtype=torch.float32)).dtype == torch.float32
    assert nn.Sequential(vector).to("meta")[0].values.device.type == "meta"


def test_it_is_no_part_of_a_checkpoint_and_survives_a_copy():
    vector = PerClass(torch.tensor([0.5, 1.0]))
    assert vector.state_dict() == {}
    assert copy.deepcopy(vector).values.tolist() == [0.5, 1.0]
