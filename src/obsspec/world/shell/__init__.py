"""Reading shell scripts: parse, expand, and say what they touch. Nothing is run."""
