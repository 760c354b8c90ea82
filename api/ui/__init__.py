"""Operator pages under `/ui`: people find, read and decide sessions in a browser.

`signin` says who a browser is and what it may; `pages` draws; `story`, `decision`, `lists` and `operations` gather what is
drawn; `routes` and `actions` are the addresses. Everything a session holds is hostile text here: it is escaped, never
marked up, and files are shown as text or as images, or downloaded. Pages work without scripts; `static/ui.js` adds live
updates and keys.
"""
