"""obsspec behind the interfaces that people already use."""
