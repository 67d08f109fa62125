"""The main job: the same tasks through the sequential and the speculative pipeline, paired, and what came of it."""
