"""Simulation: the shipped session, gate and collector on a virtual clock, with modelled servers, tools and sources."""
