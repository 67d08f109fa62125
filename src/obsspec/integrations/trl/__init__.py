"""Rollouts with observation speculation for TRL's `GRPOTrainer`."""
