"""Stand-ins for the family: the twelve pinned models made small, with their names, labels and forms, and no meaning.

They let the whole pipeline run anywhere, without the Hub and without gigabytes: `vela sample --family` writes them.
"""
