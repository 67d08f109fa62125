"""The rules source: evaluates commands over what the transcript of a rollout determines."""
