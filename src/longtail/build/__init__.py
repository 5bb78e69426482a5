"""Spec -> object, each match exhaustive: the only package that knows both the written form and the parts."""

from longtail.build.data import dataset as dataset
from longtail.build.losses import loss as loss
from longtail.build.models import model as model
from longtail.build.training import batches as batches
from longtail.build.training import optimizer as optimizer
