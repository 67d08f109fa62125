"""Suites that every adapter must pass: `check_policy`, `check_world_model`, `check_sandbox`, `check_guards`."""

from obsspec.testing.conformance.guarded import check_guards
from obsspec.testing.conformance.policy import check_policy
from obsspec.testing.conformance.promise import BrokenPromiseError
from obsspec.testing.conformance.sandbox import check_sandbox
from obsspec.testing.conformance.world_model import check_world_model

__all__ = ["BrokenPromiseError", "check_guards", "check_policy", "check_sandbox", "check_world_model"]
