"""What every room shares and nothing else: the root of the error tree, canonical paths, JSON text.

This package imports no other package of the project.
"""
