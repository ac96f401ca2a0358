"""A champion at work: exports that need no see-tune, and retrieval over one's own pictures.

Takes a `StoredModel` that somebody else opened, and knows neither the registry nor studies.
"""
