"""The demo, told in parts: a suite, two workers, a run that loses its worker in the middle, and what was left of it."""
