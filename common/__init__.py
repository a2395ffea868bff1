"""What the services share. The ground (errors, request, config, kv) knows neither grpc nor redis."""
