"""What ``./caisson`` does.

``setup`` needs the standard library only; everything else runs inside the project's ``.venv``.
"""
