"""Re-balanced sampling: which images an epoch shows, and in which order (Eq. 10 to 12).

Pure functions of (counts or targets, rule, seed, epoch): nothing is stored, no global stream is read, every
process computes the same order and takes its own part of it.

    probabilities(counts, rule)                      chance of each class
    indices(targets, rule, seed=0, epoch=3)          the order of epoch 3
    part(order, step, batch_size, rank=r, world_size=w)   what rank r sees of batch `step`
    Sampler(targets, rule)                           the same for a torch DataLoader

| rule | chance of class j | drawn |
| --- | --- | --- |
| instance | n_j | without replacement: a permutation |
| class_balanced | 1 | with replacement |
| square_root | n_j^(1/2) | with replacement |
| power | n_j^power | with replacement |
| effective_number | n_j / E_j, E_j = (1 - beta^n_j) / (1 - beta) | with replacement |
| cben | the same, beta_j = beta + 1e-5 * log cloud of j | with replacement |
| progressive | from n_j (first epoch) to 1 (last epoch), linearly | a class, then its next image |
| class_aware | 1, exactly: 4 images of every class per cycle | every class's next 4 images |
| reverse | 1 / n_j | with replacement |
"""

from longtail.data.sampling.chances import Rule as Rule
from longtail.data.sampling.chances import probabilities as probabilities
from longtail.data.sampling.order import indices as indices
from longtail.data.sampling.ranks import Remainder as Remainder
from longtail.data.sampling.ranks import part as part
from longtail.data.sampling.ranks import share as share
from longtail.data.sampling.sampler import Sampler as Sampler

__all__ = ["Remainder", "Rule", "Sampler", "indices", "part", "probabilities", "share"]
