"""What each diagnostic identifier means: plain data, read through `engine.spec.reference`."""
