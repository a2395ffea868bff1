"""One engine, two roles: scheduler, model runner, sampler and the tensor of the KV pool."""
