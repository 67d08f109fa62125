"""Evaluates world models on recorded trajectories: what each source would have predicted, and what that is worth."""
