"""Rollouts with observation speculation for TRL's `GRPOTrainer`."""

from obsspec.integrations.trl.adopt import rollout_func
from obsspec.integrations.trl.function import RolloutFunction, reward
from obsspec.train.weights import EmbeddedServing, VllmServing

__all__ = ["EmbeddedServing", "RolloutFunction", "VllmServing", "reward", "rollout_func"]
