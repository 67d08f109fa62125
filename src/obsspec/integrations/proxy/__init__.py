"""`obsspec serve`: an HTTP proxy in front of an OpenAI-compatible engine.

A client changes its base URL and nothing else. What it sends goes on to the engine byte for byte; while its tools run,
the proxy predicts what it will send next and starts that request early. If the client's real request is equal to the
one that was started (path, credentials, every header and every field of the body that may matter), it gets the
answer that is already under way; in all other cases the proxy might as well not be there.

The rules are those of every session (`obsspec.speculation.controller`); a chat is made of messages, not of token ids,
so its "prompt" is a sequence of numbers that stand for the exact text of each message, and everything else in the
request is one text beside it (`Sampling.model`). Two such keys are equal exactly if the two requests are.
The shipped `Session` hands finished completions to a loop; `conversation` drives the same controller, but hands the
running stream of bytes to the client.
"""
