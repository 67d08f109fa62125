"""The Python replica: predicts what a Python tool answers by running the same code in an isolated local REPL."""
