"""What API-like tools answer, learnt from what they answered: small hypotheses, each trusted by its own record."""

from obsspec.world.tools.source import Tools as Tools
