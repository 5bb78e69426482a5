"""Which class gets which target: the pairing of rows and columns with the least total cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def assigned(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row of a square matrix its column, each column once, so that the sum is least.

    The Hungarian method by shortest augmenting paths (Jonker and Volgenant 1987): the rows are added one by
    one. Prices of rows and columns keep every reduced cost from falling below 0; the cheapest path from the
    new row to a free column then moves the columns along it. O(n^3), one vector operation for each step.

    Example:
        >>> assigned(np.array([[1.0, 2.0], [0.0, 4.0]])).tolist()
        [1, 0]
    """
    size = len(cost)
    if cost.shape != (size, size) or not np.isfinite(cost).all():
        raise ValueError(f"costs must be a square matrix of finite numbers, got shape {cost.shape}")
    row_price, column_price = np.zeros(size), np.zeros(size + 1)
    owner = np.full(size + 1, -1)  # of each column; the last one stands for the row that is being added
    for row in range(size):
        owner[size], column = row, size
        distance, before = np.full(size, np.inf), np.full(size, size)
        seen = np.zeros(size + 1, dtype=bool)
        while owner[column] >= 0:  # until a free column is reached
            seen[column] = True
            mine = owner[column]
            reduced = cost[mine] - row_price[mine] - column_price[:size]
            shorter = ~seen[:size] & (reduced < distance)
            distance[shorter], before[shorter] = reduced[shorter], column
            nearest = int(np.where(seen[:size], np.inf, distance).argmin())
            step = distance[nearest]
            row_price[owner[seen]] += step
            column_price[seen] -= step
            distance[~seen[:size]] -= step
            column = nearest
        while column != size:
            owner[column] = owner[before[column]]
            column = int(before[column])
    return np.argsort(owner[:size])
