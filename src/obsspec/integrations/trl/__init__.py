"""Rollouts with observation speculation for TRL's `GRPOTrainer`."""

from obsspec.integrations.trl.adopt import rollout_func
from obsspec.integrations.trl.function import RolloutFunction, finished_reward, reward
from obsspec.train.weights import EmbeddedServing, VllmServing

__all__ = ["EmbeddedServing", "RolloutFunction", "VllmServing", "finished_reward", "reward", "rollout_func"]
