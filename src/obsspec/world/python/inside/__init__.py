"""What runs in the sandbox of the Python replica: standard library only, Python 3.8 or later, IPython where it is."""
