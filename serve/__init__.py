"""Text to answer: tokenise, window, choose a graph, run, decode, and the HTTP surface over it."""
