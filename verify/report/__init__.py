"""A bundle's records as one HTML page for people: `reading` collects, `summary` sums up, `page` renders."""
