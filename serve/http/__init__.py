"""The HTTP surface: structs, routes and the Starlette app."""
