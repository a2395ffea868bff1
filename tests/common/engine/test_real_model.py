"""The whole engine on a tiny random Llama in float32, against transformers' own generate."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common.config import DType, EngineConfig
from common.engine.build import BuiltEngine, build_engine
from common.engine.results import HandedOver, LegEndReason, LegStart, TokenOutput
from common.errors import Status
from common.request import Leg
from tests.support.engine import make_leg

VOCAB_SIZE = 400
MAX_MODEL_LEN = 192
NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM = 2, 2, 8
NUM_NEW_TOKENS = 24


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=NUM_KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)  # as initialised, all logits would be nearly equal
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reference(model_folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()


def build(
    folder: Path, *, num_blocks: int | None = None, num_host_blocks: int = 0, decode: bool = False, **changes: object
) -> BuiltEngine:
    fields: dict[str, object] = {"block_size": 16, "max_num_batched_tokens": 512, "max_num_seqs": 16, **changes}
    block_size = fields["block_size"]
    assert isinstance(block_size, int)
    if num_blocks is None:
        num_blocks = 16 * MAX_MODEL_LEN // block_size
    block_bytes = NUM_LAYERS * 2 * NUM_KV_HEADS * HEAD_DIM * block_size * 4
    config = EngineConfig(
        model=str(folder),
        dtype=DType.FLOAT32,
        max_model_len=MAX_MODEL_LEN,
        kv_memory=str(num_blocks * block_bytes),
        swap_space=str(num_host_blocks * block_bytes),
        num_threads=1,
        device="cpu",
        **fields,  # type: ignore[arg-type]
    )
    return build_engine(config, hand_back_when_preempted=decode)


def make_prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(3, VOCAB_SIZE, (length,), generator=generator).tolist())


def run(built: BuiltEngine, legs: Sequence[Leg]) -> dict[tuple[str, int], list[int]]:
    """Outputs by request and choice, the books checked at the end."""
    for leg in legs:
        built.engine.submit(leg)
    outputs = tokens_by_choice(drain(built))
    integrity = built.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    return outputs


def drain(built: BuiltEngine) -> list[TokenOutput]:
    tokens = []
    while built.engine.has_work():
        step = built.engine.step()
        assert not step.ends, step.ends
        tokens += step.tokens
    return tokens


def tokens_by_choice(tokens: Sequence[TokenOutput]) -> dict[tuple[str, int], list[int]]:
    outputs: dict[tuple[str, int], list[int]] = {}
    for output in tokens:
        outputs.setdefault((output.request_id, output.choice_index), []).extend(output.token_ids)
    return outputs


def greedy_reference(reference: LlamaForCausalLM, prompt: tuple[int, ...]) -> list[int]:
    input_ids = torch.tensor([prompt])
    generated = reference.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=NUM_NEW_TOKENS,
        min_new_tokens=NUM_NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    token_ids: list[int] = generated[0, len(prompt) :].tolist()
    return token_ids


def greedy_legs(prompts: Sequence[tuple[int, ...]]) -> list[Leg]:
    return [
        make_leg(prompt, request_id=f"r{index}", max_tokens=NUM_NEW_TOKENS, ignore_eos=True)
        for index, prompt in enumerate(prompts)
    ]


PROMPTS = [make_prompt(length) for length in (1, 7, 16, 33, 64, 130)]


@pytest.fixture(scope="module")
def expected(reference: LlamaForCausalLM) -> dict[tuple[str, int], list[int]]:
    return {(f"r{index}", 0): greedy_reference(reference, prompt) for index, prompt in enumerate(PROMPTS)}


@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_a_batch_equals_generate(
    model_folder: Path, expected: dict[tuple[str, int], list[int]], block_size: int
) -> None:
    built = build(model_folder, block_size=block_size)
    assert run(built, greedy_legs(PROMPTS)) == expected


def test_chunked_prefill_equals_generate(model_folder: Path, expected: dict[tuple[str, int], list[int]]) -> None:
    built = build(model_folder, max_num_batched_tokens=23)
    assert run(built, greedy_legs(PROMPTS)) == expected


def test_a_cached_prefix_changes_nothing(model_folder: Path, expected: dict[tuple[str, int], list[int]]) -> None:
    built = build(model_folder)
    assert run(built, greedy_legs(PROMPTS)) == expected
    assert run(built, greedy_legs(PROMPTS)) == expected
    # Whole blocks, but for the last token: it is computed again.
    assert built.engine.load().prefix_hit_tokens == 0 + 0 + 15 + 32 + 63 + 128


def test_preemption_changes_nothing(model_folder: Path, expected: dict[tuple[str, int], list[int]]) -> None:
    built = build(model_folder, num_blocks=MAX_MODEL_LEN // 8, block_size=8)
    assert run(built, greedy_legs(PROMPTS)) == expected
    assert built.engine.load().num_preemptions > 0


def test_sampled_choices_are_the_same_alone_in_a_batch_and_after_a_preemption(model_folder: Path) -> None:
    leg = make_leg(
        make_prompt(37), request_id="n", choices=4, temperature=0.8, top_p=0.9, seed=2**63 + 5, max_tokens=40
    )
    leg = replace(leg, sampling=replace(leg.sampling, ignore_eos=True, frequency_penalty=0.3), priority=1)
    alone = run(build(model_folder), [leg])
    assert len({tuple(outputs) for outputs in alone.values()}) == 4
    in_batch = run(build(model_folder), [*greedy_legs(PROMPTS), leg])
    assert {key: in_batch[key] for key in alone} == alone
    short = build(model_folder, num_blocks=28, block_size=8)
    preempted = run(short, [leg, *greedy_legs(PROMPTS[:4])])
    assert short.engine.load().num_preemptions > 0
    assert {key: preempted[key] for key in alone} == alone


def test_swapping_changes_nothing(model_folder: Path, expected: dict[tuple[str, int], list[int]]) -> None:
    built = build(model_folder, num_blocks=MAX_MODEL_LEN // 8, block_size=8, num_host_blocks=100, decode=True)
    assert run(built, greedy_legs(PROMPTS)) == expected
    load = built.engine.load()
    assert load.num_swap_outs > 0
    assert load.num_preemptions == 0
    assert load.num_prefilled_tokens + load.prefix_hit_tokens == sum(map(len, PROMPTS))
    assert built.engine.check_integrity().num_used_host_blocks == 0


def test_sampled_penalised_and_logged_choices_are_the_same_after_a_swap(model_folder: Path) -> None:
    penalties = {"frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.1, "logit_bias": {7: 2.0}}
    legs = [
        make_leg(
            make_prompt(37 + index),
            request_id=f"n{index}",
            choices=choices,
            **{"temperature": 0.8, "top_p": 0.9, "seed": 2**63 + 5, "max_tokens": 40, "ignore_eos": True},
            **{"logprobs": 3, "prompt_logprobs": 1, **penalties},
        )
        for index, choices in enumerate((4, 1, 2))
    ]
    roomy = build(model_folder)
    short = build(model_folder, num_blocks=28, block_size=8, num_host_blocks=100)
    told = []
    for built in (roomy, short):
        for leg in legs:
            built.engine.submit(leg)
        told.append({(one.request_id, one.choice_index, one.first_index): one for one in drain(built)})
    load = short.engine.load()
    assert load.num_swap_outs > 0
    assert load.num_preemptions == 0
    assert told[0].keys() == told[1].keys()
    assert len(told[0]) == 7 * 40
    for key, undisturbed in told[0].items():
        swapped = told[1][key]
        assert swapped.token_ids == undisturbed.token_ids
        assert swapped.finish_reason is undisturbed.finish_reason
        assert (swapped.start is None) is (undisturbed.start is None)
        for one, other in zip(swapped.logprobs, undisturbed.logprobs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert (one.rank, [top.token_id for top in one.top]) == (other.rank, [top.token_id for top in other.top])


POISON_TOKEN = 5


@pytest.fixture(scope="module")
def poisoned_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, but for one token whose embedding is not a number."""
    folder = tmp_path_factory.mktemp("poisoned")
    model = LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.embed_tokens.weight[POISON_TOKEN] = float("nan")
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("position", [0, 20, 63])
@pytest.mark.parametrize("max_num_batched_tokens", [16, 512])
def test_numbers_that_are_not_finite_fail_their_request_alone_and_stay_out_of_the_cache(
    poisoned_folder: Path, expected: dict[tuple[str, int], list[int]], position: int, max_num_batched_tokens: int
) -> None:
    built = build(poisoned_folder, max_num_batched_tokens=max_num_batched_tokens, num_blocks=40)
    legs = [leg for leg in greedy_legs(PROMPTS) if POISON_TOKEN not in expected[leg.request_id, 0]]
    legs = [leg for leg in legs if POISON_TOKEN not in leg.prompt_token_ids]
    assert len(legs) >= 4
    prompt = list(make_prompt(64, seed=3))
    poisoned = make_leg(
        [*prompt[:position], POISON_TOKEN, *prompt[position + 1 :]],
        request_id="poisoned",
        **{"choices": 2, "logprobs": 1, "prompt_logprobs": 1},
    )
    for leg in (poisoned, *legs):
        built.engine.submit(leg)
    tokens, ends = [], []
    while built.engine.has_work():
        step = built.engine.step()
        tokens += step.tokens
        ends += step.ends
    (end,) = ends
    assert (end.request_id, end.reason, end.status) == ("poisoned", LegEndReason.FAILED, Status.INTERNAL)
    assert "not finite" in end.message
    outputs = tokens_by_choice(tokens)
    assert outputs == {(leg.request_id, 0): expected[leg.request_id, 0] for leg in legs}
    # Its prompt up to there may be cached, but nothing of what was not finite.
    probe = replace(poisoned, request_id="again", sampling=replace(poisoned.sampling, prompt_logprobs=None))
    before = built.engine.load().prefix_hit_tokens
    built.engine.submit(probe)
    while built.engine.has_work():
        built.engine.step()
    assert built.engine.load().prefix_hit_tokens - before <= position
    # The blocks with those numbers are given out again, and hurt nobody.
    built.engine.reset_prefix_cache()
    assert run(built, legs) == outputs


def test_a_request_that_forbids_every_token_fails_with_a_reason(model_folder: Path) -> None:
    built = build(model_folder)
    stops = tuple(range(VOCAB_SIZE))
    leg = make_leg(make_prompt(7), min_tokens=4, max_tokens=8)
    object.__setattr__(leg.sampling, "stop_token_ids", stops)  # more than a request may name
    other = make_leg(make_prompt(7), request_id="other", max_tokens=8)
    built.engine.submit(leg)
    built.engine.submit(other)
    ends, tokens = [], []
    while built.engine.has_work():
        step = built.engine.step()
        ends += step.ends
        tokens += step.tokens
    assert [(end.request_id, end.status) for end in ends] == [("r", Status.INTERNAL)]
    assert "leaves no token to draw" in ends[0].message
    assert {output.request_id for output in tokens} == {"other"}


def test_logprobs_of_prompt_and_outputs_are_the_models(model_folder: Path, reference: LlamaForCausalLM) -> None:
    prompt = make_prompt(45)
    leg = make_leg(prompt, max_tokens=4, ignore_eos=True, logprobs=3, prompt_logprobs=2)
    built = build(model_folder, max_num_batched_tokens=20)
    run(built, [replace(leg, request_id="before")])  # the prompt is cached, and must be computed all the same
    built.engine.submit(leg)
    tokens = drain(built)
    start = tokens[0].start
    assert isinstance(start, LegStart)
    outputs = [token_id for output in tokens for token_id in output.token_ids]
    with torch.inference_mode():
        logprobs = reference(torch.tensor([[*prompt, *outputs]])).logits[0].float().log_softmax(-1)
    told = [*start.prompt_logprobs, *(logprob for output in tokens for logprob in output.logprobs)]
    assert [logprob.token_id for logprob in told] == [*prompt, *outputs][1:]
    for row, logprob in enumerate(told):
        assert logprob.logprob == pytest.approx(float(logprobs[row, logprob.token_id]), abs=2e-4)
        assert logprob.rank == 1 + int((logprobs[row] > logprobs[row, logprob.token_id]).sum())
        assert [top.token_id for top in logprob.top] == logprobs[row].topk(len(logprob.top)).indices.tolist()
    assert {len(logprob.top) for logprob in start.prompt_logprobs} == {2}


@pytest.mark.parametrize("block_size", [8, 64])
@pytest.mark.parametrize("corrupt", [False, True])
def test_a_hand_over_by_bytes_equals_generate(
    model_folder: Path, expected: dict[tuple[str, int], list[int]], block_size: int, corrupt: bool
) -> None:
    source = build(model_folder, block_size=block_size, max_num_batched_tokens=50)
    sink = build(model_folder, block_size=block_size, decode=True)
    outputs: dict[tuple[str, int], list[int]] = {}
    for leg in greedy_legs(PROMPTS):
        reservation = sink.engine.reserve(leg)
        (group,) = reservation.maps
        source.engine.submit(leg, hand_over=True)
        handed_over: list[HandedOver] = []
        while source.engine.has_work():
            step = source.engine.step()
            for computed in step.computed:
                for logical_block, block_id in enumerate(computed.block_ids, start=computed.first_logical_block):
                    data = source.kv_cache.block_bytes(0, block_id).tobytes()
                    if corrupt and logical_block == 0:
                        data = bytes(len(data))
                    if not group.present[logical_block]:
                        sink.kv_cache.write_block_bytes(0, group.block_ids[logical_block], data)
            handed_over += step.handed_over
            for output in step.tokens:
                outputs[output.request_id, output.choice_index] = list(output.token_ids)
        sink.engine.commit(reservation.reservation_id, handed_over[0].first_tokens, leg.attempt)
        source.engine.release_lease(leg.request_id, leg.attempt)
    for key, token_ids in tokens_by_choice(drain(sink)).items():
        outputs[key] += token_ids
    assert (outputs == expected) is not corrupt
    for built in (source, sink):
        integrity = built.engine.check_integrity()
        assert integrity.num_free_blocks == integrity.num_blocks
