"""Sandboxes at providers: the same runner is uploaded into each and called through the provider's exec."""
