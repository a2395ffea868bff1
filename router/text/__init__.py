"""Text at the router: tokenising, chat templates, incremental detokenising and stop strings.

Needs `tokenizers` and `jinja2` only; torch and transformers stay out of the process.
"""

from router.text.text_model import TextModel, TokenText
from router.text.text_stream import TextDelta, TextStream
from router.text.text_workers import TextWorkers

__all__ = ["TextDelta", "TextModel", "TextStream", "TextWorkers", "TokenText"]
