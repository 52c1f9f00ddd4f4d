"""Measures the product against baselines, interleaved in one run, and prints ratios: `make bench CASE=commit`.

Machines are noisy and differ, so absolute figures are printed and never judged. `harness` measures, `stage` starts what
is measured, `cases` say what is compared with what.
"""
