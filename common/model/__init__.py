"""Models of the Llama family: architecture, weights, memory. Importing the package imports no torch."""
