"""Heads with a memory against their formulas, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from longtail.heads import Cosine, Linear, MetaEmbedding, Remembering

D, C = 4, 3


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def meta():
    head = MetaEmbedding(Linear(D, C, generator=seeded()), D, generator=seeded(1)).double()
    return head.fit(drawn(12, D, seed=5), torch.arange(12) % C)


def remembering(size=5, counts=(8, 4, 2)):
    head = Remembering(Linear(D, C, generator=seeded()), D, size=size)
    head.begin(counts)
    return head


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def length(values):
    return math.sqrt(dot(values, values))


def embedded_by_hand(head, x):
    """reach * (x + tanh(Ux + u) * softmax(Hx + h) M), reach = 10 / the distance to the nearest centroid."""
    memory = head.centroids.tolist()
    nearest = min(length([a - b for a, b in zip(x, m)]) for m in memory)
    asked = [
        dot(w, x) + b for w, b in zip(head.hallucinator.weight.tolist(), head.hallucinator.bias.tolist())
    ]
    whole = sum(math.exp(a) for a in asked)
    recalled = [sum(math.exp(a) / whole * m[d] for a, m in zip(asked, memory)) for d in range(D)]
    rows = zip(head.selector_weight.tolist(), head.selector_bias.tolist())
    selected = [math.tanh(dot(w, x) + b) for w, b in rows]
    return [10 / nearest * (x[d] + selected[d] * recalled[d]) for d in range(D)]


def test_the_feature_borrows_from_memory_as_the_formula_says():
    head, batch = meta(), drawn(6, D)
    expected = [embedded_by_hand(head, x) for x in batch.tolist()]
    made = head.embedded(batch)
    torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def test_scores_are_squashed_cosines_of_the_embedded_feature():
    head, batch = meta(), drawn(6, D)
    expected = []
    for x in batch.tolist():
        v = embedded_by_hand(head, x)
        expected.append([dot(v, w) / (1 + length(v)) / length(w) for w in head.weight.tolist()])
    made = head(batch)
    torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)
    assert made.abs().max() < 1


def test_distances_are_squared_and_move_the_centroids_while_scores_do_not():
    head, batch = meta(), drawn(6, D)
    expected = [
        [sum((a - b) ** 2 for a, b in zip(x, m)) for m in head.centroids.tolist()] for x in batch.tolist()
    ]
    made = head.distances(batch)
    torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)
    head(batch).sum().backward()
    assert head.centroids.grad is None
    made.sum().backward()
    assert head.centroids.grad.abs().min() > 0


def test_with_a_selector_of_zero_it_is_a_squashed_cosine_head_at_the_reached_length():
    head, batch = meta(), drawn(6, D)
    with torch.no_grad():
        head.selector_weight.zero_()
        head.selector_bias.zero_()
    plain = Cosine(D, C).double()
    plain.load_state_dict({"weight": head.weight})
    nearest = torch.stack([(batch - m).norm(dim=1) for m in head.centroids]).amin(0)
    reached = 10 / nearest * batch.norm(dim=1)
    torch.testing.assert_close(head(batch), plain(batch) * (reached / (1 + reached))[:, None])


def test_a_feature_near_a_centroid_is_reached_further_than_a_far_one():
    head = meta()
    with torch.no_grad():
        head.selector_weight.zero_()
        head.selector_bias.zero_()
        direction = head.centroids[1]
        near, far = head.embedded(torch.stack([1.1 * direction, 9 * direction])).norm(dim=1) / torch.tensor(
            [1.1, 9.0]
        )
    assert near > 2 * far


def test_fit_gives_class_means_and_zero_where_there_is_no_image():
    features, labels = drawn(7, D), torch.tensor([0, 2, 0, 2, 2, 0, 0])
    head = MetaEmbedding(Linear(D, C), D).double().fit(features, labels)
    for label in (0, 2):
        mine = [row for row, y in zip(features.tolist(), labels.tolist()) if y == label]
        expected = [sum(column) / len(mine) for column in zip(*mine)]
        assert head.centroids[label].tolist() == pytest.approx(expected, rel=1e-12)
    assert not head.centroids[1].any()
    with pytest.raises(ValueError, match="3 classes"):
        head.fit(features, labels, num_classes=4)


def test_redrawing_keeps_the_centroids_and_the_hallucinator():
    head = meta()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    head.reset_parameters(seeded(9))
    same = {name for name, tensor in head.state_dict().items() if torch.equal(tensor, before[name])}
    assert same == {"centroids", "hallucinator.weight", "hallucinator.bias"}


# ---------------------------------------------------------------------------------- a memory of features


def by_hand(head, batches, generator):
    """A list of the newest features, as a queue of places; the chance of class j is n_min / n_j."""
    size = len(head.labels)
    features, labels, place = [[0.0] * D for _ in range(size)], [-100] * size, 0
    for batch, target in batches:
        draws = torch.rand(len(target), generator=generator).tolist()
        for x, y, u in zip(batch.tolist(), target.tolist(), draws):
            if u < head.chances[y]:
                features[place], labels[place] = x, y
                place = (place + 1) % size
    return features, labels, place


@pytest.mark.parametrize("size", [7, 64])
def test_writing_is_a_queue_that_chance_lets_in(size):
    head, rounds = remembering(size), [drawn(n, D, seed=n).float() for n in (4, 7, 1, 6, 5)]
    batches = [(batch, (torch.arange(len(batch)) * 2 + 1) % C) for batch in rounds]
    generator = seeded(3)
    for batch, target in batches:
        head.write(batch, target, generator=generator)
    features, labels, place = by_hand(head, batches, seeded(3))
    assert head.labels.tolist() == labels and int(head.place) == place
    assert torch.equal(head.features, torch.tensor(features))
    assert 0 < sum(y >= 0 for y in labels) <= size


def test_a_batch_larger_than_the_memory_leaves_its_first_features():
    head, batch = remembering(3, (1, 1, 1)), drawn(5, D).float()
    head.write(batch, torch.tensor([0, 1, 2, 0, 1]), generator=seeded())
    assert head.labels.sort().values.tolist() == [0, 1, 2] and torch.equal(head.features, batch[:3])


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_rare_classes_are_written_with_the_larger_chance(power):
    head = remembering()
    head.begin([80, 20, 5], power)
    expected = [(5 / n) ** power for n in (80, 20, 5)]
    assert head.chances.tolist() == pytest.approx(expected)
    labels = torch.arange(30_000) % C
    memory = Remembering(Linear(D, C), D, size=30_000)
    memory.begin([80, 20, 5], power)
    memory.write(torch.zeros(len(labels), D), labels, generator=seeded(2))
    written = torch.bincount(memory.labels[memory.labels >= 0], minlength=C) / 10_000
    torch.testing.assert_close(written, torch.tensor(expected), atol=0.02, rtol=0)


def test_at_power_one_every_class_is_written_equally_often_in_an_epoch():
    counts = torch.tensor([5000, 387, 50])
    head = remembering(4096, counts)
    assert (counts * head.chances.double()).tolist() == pytest.approx([50.0] * 3)


def test_ignored_samples_are_not_written_and_nothing_flows_back():
    head = remembering(4, (1, 1, 1))
    batch = drawn(3, D).float().requires_grad_()
    head.write(batch, torch.tensor([-100, 1, -100]), generator=seeded())
    assert head.labels.tolist() == [1, -100, -100, -100]
    assert not head.features.requires_grad
    scores, labels = head.recalled()
    scores.sum().backward()
    assert batch.grad is None and head.head.weight.grad is not None


def test_what_was_recalled_may_be_differentiated_after_the_memory_has_moved_on():
    head = remembering(4, (1, 1, 1))
    head.write(torch.ones(2, D), torch.tensor([0, 1]), generator=seeded())
    scores, labels = head.recalled()
    head.write(3 * torch.ones(4, D), torch.tensor([2, 2, 2, 2]), generator=seeded())
    scores[labels >= 0].sum().backward()
    assert torch.equal(head.head.weight.grad, torch.full((C, D), 2.0))


def test_scoring_and_recalling_write_nothing():
    head = remembering()
    head.write(torch.ones(2, D), torch.tensor([2, 2]), generator=seeded())
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    for mode in (True, False):
        head.train(mode)(drawn(6, D).float())
        head.recalled()
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())
    assert set(before) > {"features", "labels", "place", "chances"}


def test_a_stage_begins_with_an_empty_memory():
    head = remembering(3, (1, 1, 1))
    head.write(torch.ones(2, D), torch.tensor([2, 2]), generator=seeded())
    head.begin([4, 2, 0])
    assert head.labels.tolist() == [-100] * 3 and int(head.place) == 0 and not head.features.any()
    assert head.chances.tolist() == [0.25, 0.5, 1.0]


def test_writing_reads_no_value_that_lies_on_an_accelerator():
    """A meta tensor has no values: whatever would make the host wait raises here."""
    head = remembering().to("meta")
    head.write(torch.empty(4, D, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta"))
    assert head.recalled()[0].device.type == "meta"


def test_a_memory_without_room_is_refused():
    with pytest.raises(ValueError, match="room"):
        Remembering(Linear(D, C), D, size=0)
