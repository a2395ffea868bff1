"""The router's OpenAI HTTP API: decodes requests, calls the generator, encodes its answers."""

from router.http.app import create_app
from router.http.server import HttpServer, serve_http

__all__ = ["HttpServer", "create_app", "serve_http"]
