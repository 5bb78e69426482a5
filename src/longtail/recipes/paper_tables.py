"""The published figures, as typed data.

Top-1 accuracies in percent, from the tables of "Adjusting Logit in Gaussian Form for Long-Tailed Visual
Recognition" (TAI 2024, arXiv 2305.10648). `quoted` marks a row that the authors took from the original
article; None is a cell that they left empty. Notes name the misprints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal["paper", "paper: quoted from the original article", "released code: README"]
Figure = float | None

RATIOS = (200, 100, 50)
LARGE_SETS = ("ImageNet-LT", "iNaturalist 2018", "Places-LT")


@dataclass(frozen=True)
class Row:
    """One method over the columns of a table."""

    figures: tuple[Figure, ...]
    quoted: bool = False
    note: str = ""

    @property
    def source(self) -> Source:
        return "paper: quoted from the original article" if self.quoted else "paper"


@dataclass(frozen=True)
class Published:
    """One figure with the place it comes from."""

    value: float
    table: str
    row: str
    column: str
    source: Source = "paper"
    note: str = ""

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.table}, row {self.row}, {self.column})"


# Columns: CIFAR-10-LT at r=200, 100, 50; then CIFAR-100-LT at r=200, 100, 50.
CIFAR: Mapping[str, Row] = {
    "CE": Row((65.68, 70.70, 74.81, 34.84, 38.43, 43.90)),
    "CosFace": Row((66.22, 72.08, 77.40, 35.36, 39.21, 43.11)),
    "ArcFace": Row((66.50, 73.76, 78.19, 36.64, 39.06, 43.40)),
    "LDAM-DRW": Row((73.52, 77.03, 81.03, 38.91, 42.04, 47.62)),
    "TDE": Row((None, 80.60, 83.60, None, 44.15, 50.31), quoted=True),
    "Decoupling": Row((73.06, 79.15, 84.21, 41.73, 45.12, 50.86)),
    "BBN": Row((73.47, 79.82, 81.18, 37.21, 42.56, 47.02)),
    "Contrastive": Row((None, 81.40, 85.36, None, 46.72, 51.87)),
    "MisLAS": Row((77.31, 82.06, 85.16, 42.33, 47.50, 52.62)),
    "TSC": Row((None, 79.70, 82.90, None, 43.80, 47.40), quoted=True),
    "MBJ": Row((77.06, 81.10, 85.45, 41.92, 46.05, 52.43)),
    "FBL": Row((78.10, 82.46, 84.30, 40.67, 45.22, 50.65)),
    "GCL-E": Row((79.03, 82.73, 85.43, 44.84, 48.69, 53.51)),
    "GCL-A": Row((79.31, 82.72, 85.58, 46.53, 49.97, 54.75)),
}

# Three experts, same columns.
EXPERTS: Mapping[str, Row] = {
    "RIDE": Row((80.42, 83.39, 85.34, 47.80, 50.91, 54.87)),
    "RIDE + GCL-E": Row((81.32, 84.32, 87.03, 48.96, 52.57, 57.49)),
    "RIDE + GCL-A": Row((82.08, 84.73, 86.95, 48.62, 52.38, 57.51)),
}

# Columns: ImageNet-LT (ResNet-50), iNaturalist 2018 (ResNet-50), Places-LT (ResNet-152).
LARGE: Mapping[str, Row] = {
    "CE": Row((44.51, 63.80, 27.13)),
    "CosFace": Row((44.95, 72.08, 27.19), note="72.08 repeats a CIFAR-10 cell: never a target"),
    "ArcFace": Row((44.54, 66.72, 27.63)),
    "LDAM-DRW": Row((49.96, 68.15, 37.73)),
    "OLTR": Row((None, None, 35.90), quoted=True),
    "Decoupling": Row((51.68, 70.16, 38.51), note="the table of splits prints 47.70 for ImageNet-LT"),
    "LogitAdjust": Row((51.11, 66.36, None), quoted=True),
    "DisAlign": Row((52.91, 70.06, 39.30), quoted=True),
    "MisLAS": Row((52.71, 71.57, 40.36), note="the table of splits prints 52.11 for ImageNet-LT"),
    "TSC": Row((52.40, 69.70, None), quoted=True),
    "MBJ": Row((52.10, 70.00, 38.10), quoted=True),
    "FBL": Row((50.70, 69.90, 38.66)),
    "GCL-E": Row((54.84, 72.01, 40.62), note="54.84 is a misprint of 54.88 on ImageNet-LT"),
    "GCL-A": Row((55.12, 71.14, 39.22)),
}

EXPERTS_LARGE: Mapping[str, Row] = {
    "RIDE": Row((55.55, 72.17, 39.91)),
    "RIDE + GCL-E": Row((57.01, 74.27, 41.06)),
    "RIDE + GCL-A": Row((57.25, 73.56, 41.50)),
}

# ImageNet-LT by group of classes: many (n > 100), medium (20 < n <= 100), few (n <= 20), all.
SPLITS: Mapping[str, Row] = {
    "CE": Row((64.91, 38.10, 11.28, 44.51)),
    "CosFace": Row((64.48, 39.26, 11.55, 44.95)),
    "ArcFace": Row((64.86, 38.07, 11.75, 44.54)),
    "LDAM-DRW": Row((58.63, 48.95, 30.37, 49.96)),
    "OLTR": Row((61.93, 44.68, 19.98, 47.72)),
    "Decoupling": Row((63.71, 43.01, 20.55, 47.70)),
    "MisLAS": Row((62.43, 49.31, 33.89, 52.11)),
    "GCL-E": Row((63.78, 52.62, 38.70, 54.84)),
    "GCL-A": Row((62.72, 53.26, 40.95, 55.12)),
}
IMAGENET_LT_GROUPS = (385, 469, 146)

# Printed gains of the experts over RIDE: six CIFAR columns, then the three large sets.
EXPERT_GAINS: Mapping[str, tuple[float, ...]] = {
    "RIDE + GCL-E": (0.90, 0.93, 1.69, 1.16, 1.66, 2.62, 1.46, 2.10, 1.15),
    "RIDE + GCL-A": (1.66, 1.34, 1.61, 0.82, 1.47, 2.64, 1.70, 1.39, 1.59),
}

# CIFAR-10-LT, r=100, GCL-E, cRT with class-balanced sampling: what one changed part does.
CLOUDS: Mapping[str, float] = {"cosine": 79.21, "power 1/3": 80.80, "power 1/4": 82.31, "log": 82.73}
SAMPLERS: Mapping[str, float] = {"IBS": 80.52, "SRS": 81.74, "ENS": 82.45, "CBS": 82.73}
TECHNIQUES: Mapping[str, float] = {"none": 80.55, "LWS": 82.25, "tau-norm": 82.16, "cRT": 82.73}

MODEL_MEGABYTES: Mapping[str, float] = {"ResNet-32": 1.84, "RIDE, 3 experts": 5.38}

# README of the released code: ImageNet-LT, iNaturalist 2018, Places-LT; after stage 1, after stage 2.
RELEASED: Mapping[str, tuple[float, float]] = {
    "ImageNet-LT": (52.928, 54.884),
    "iNaturalist 2018": (70.327, 72.005),
    "Places-LT": (34.589, 40.641),
}
