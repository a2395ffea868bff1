"""Makes the references again and reports what differs from the committed ones; `--write` replaces them.

Run as `python -m benchmarks.exactness.references`. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer

from benchmarks.exactness.compare import TIE_GAP
from benchmarks.exactness.corpus import NUM_NEW_TOKENS, Message, Prompt, build_prompts
from benchmarks.exactness.reference import (
    REFERENCES_PATH,
    Reference,
    References,
    load_references,
    weights_digest,
)
from benchmarks.exactness.reference_model import ReferenceModel
from common.checkpoint import resolve_model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness.references", description=__doc__)
    parser.add_argument("--model", default="demo", help="local folder or 'demo'")
    parser.add_argument("--write", action="store_true", help=f"replace {REFERENCES_PATH.name}")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    made = _make(resolve_model(options.model))
    if options.write:
        made.save()
        print(f"wrote {len(made.references)} references to {REFERENCES_PATH}")
        return 0
    differences = compare_references(load_references(), made)
    for line in differences:
        print(line)
    print(f"{'DIFFERENT' if differences else 'SAME'}: {len(made.references)} references made again")
    return 1 if differences else 0


def compare_references(committed: References, made: References) -> list[str]:
    """A line per difference. A token may differ where the committed gap is a tie, for CPUs round differently."""
    if committed.weights_digest != made.weights_digest:
        return [f"weights: committed {committed.weights_digest}, now {made.weights_digest}"]
    lines: list[str] = []
    before = {reference.name: reference for reference in committed.references}
    lines.extend(f"{name}: not made any more" for name in before.keys() - {one.name for one in made.references})
    for reference in made.references:
        if reference.name not in before:
            lines.append(f"{reference.name}: not committed")
        else:
            lines.extend(_differences(before[reference.name], reference))
    return lines


def load_prompts(folder: Path) -> tuple[Prompt, ...]:
    """The corpus, tokenised and rendered by transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(text: str) -> list[int]:
        return list(tokenizer(text).input_ids)

    def render_chat(messages: Sequence[Message]) -> str:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    return build_prompts(encode, render_chat)


def _make(folder: Path) -> References:
    model = ReferenceModel(folder)
    prompts = load_prompts(folder)
    references = []
    for number, prompt in enumerate(prompts, start=1):
        reference = model.generate(prompt.name, prompt.token_ids, NUM_NEW_TOKENS)
        references.append(reference)
        print(
            f"{number:3d}/{len(prompts)} {prompt.name}: {len(prompt.token_ids)} tokens, "
            f"smallest gap {min(reference.gaps):.2g}",
            file=sys.stderr,
        )
    return References(
        weights_digest=weights_digest(folder),
        made_with={"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
        references=tuple(references),
    )


def _differences(committed: Reference, made: Reference) -> list[str]:
    if committed.prompt_token_ids != made.prompt_token_ids:
        return [f"{made.name}: the prompt's tokens differ"]
    pairs = zip(committed.token_ids, made.token_ids, committed.gaps, strict=True)
    for position, (was, now, gap) in enumerate(pairs):
        if was != now and gap < TIE_GAP:
            return []
        if was != now:
            return [f"{made.name}: token {position} was {was}, is {now}; gap {gap:.4g}"]
    return []


if __name__ == "__main__":
    raise SystemExit(main())
