"""The HTTP surface: accept, read, follow and decide over `worker.service`; keys, limits, problem details, OpenAPI."""
