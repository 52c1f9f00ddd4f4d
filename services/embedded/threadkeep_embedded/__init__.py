"""`threadkeepd`: the four services in one process (`up`), one of them alone (`serve`), `migrate` and `check`.

It knows the four `server.build()` functions and the chassis, nothing deeper.
"""
