"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# A deadline measures the machine, which may be busy, and not the code.
settings.register_profile("longtail", deadline=None)
settings.load_profile("longtail")
