"""Native kernels for CPUs: a small C++ library with a plain C interface, and what Python needs to call it."""
