"""A session's state as a pure fold of its step log, and what is read off it: events, trail, history, outcomes."""
