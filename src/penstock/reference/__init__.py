"""The parts of the documentation that are lists of what is in the code: APIs, settings, limits, error codes.

    python -m penstock.reference          # write them
    python -m penstock.reference --check  # exit code 1 if a page is not up to date

A page has them between `<!-- generated: NAME -->` and `<!-- end -->`. What is written around them is written by hand.
"""
