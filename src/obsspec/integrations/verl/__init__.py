"""verl's tool agent, made faster by speculation: an agent loop, registered by entry point or named in YAML.

`loop` is the module that imports verl; the others say what it does.
"""
