"""Lossless observation speculation for tool-using LLM agents."""
