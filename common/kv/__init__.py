"""KV cache as metadata: block keys, layout, block pool, block tables and the ticket machine. No tensors, no I/O."""
