"""A server for sentence embeddings that one can copy: docs/serving.md goes through it."""
