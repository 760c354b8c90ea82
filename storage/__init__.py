"""Where bytes live: object stores, and the durable protocol's objects on top of them."""
