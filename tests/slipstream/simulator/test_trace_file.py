from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ConfigError
from slipstream.simulator.trace import TraceRequest, TraceView
from slipstream.simulator.trace_file import open_trace_file
from tests.support.simulated import ListedTrace


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text)
    return path


def test_mooncake_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"timestamp": 1500, "input_length": 600, "output_length": 7, "hash_ids": [0, 4]}\n'
        '{"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [0]}\n',
    )
    trace = open_trace_file(path, None)
    assert trace.block_size == 512
    assert list(trace) == [TraceRequest(1.5, 600, 7, [0, 4]), TraceRequest(3.0, 512, 1, [0])]


def test_azure_csv_shares_no_block(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,130,44\n"
        "2023-11-16 18:15:48.1805900,64,0\n",
    )
    first, second = open_trace_file(path, None)
    assert (first.arrival_s, first.num_tokens, first.num_new_tokens) == (0.0, 130, 44)
    assert (second.arrival_s, second.num_tokens, second.num_new_tokens) == (1.5, 64, 1)
    assert list(first.block_ids) == [0, 1, 2]
    assert list(second.block_ids) == [3]


def test_own_csv_with_and_without_ids(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "arrival_s,input_tokens,output_tokens,block_ids,block_size,priority\n0.5,30,2,7 8,16,1\n1,20,3,,16,\n",
    )
    trace = open_trace_file(path, None)
    first, second = trace
    assert trace.block_size == 16
    assert first == TraceRequest(0.5, 30, 2, [7, 8], 1)
    assert second.priority == 0
    assert len(second.block_ids) == 2 and not set(second.block_ids) & {7, 8}


def test_the_block_size_of_a_csv_may_be_an_option(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,input_tokens,output_tokens,block_ids\n0,30,2,7 8\n")
    assert open_trace_file(path, 16).block_size == 16
    with pytest.raises(
        ConfigError, match=r"block_size: .* does not say it in a column block_size, and the option is not given"
    ):
        open_trace_file(path, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"timestamp": 0, "output_length": 1, "hash_ids": []}', "line 1: field 'input_length' is missing"),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}',
            "600 tokens are 2 blocks of 512, but there are 1 block ids",
        ),
        ('{"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [1]}', "at least one token"),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": 1}',
            "line 1: hash_ids: a list is wanted",
        ),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1.5]}',
            "line 1: a whole number is wanted",
        ),
        ('{"timestamp": 0, "input_length": true, "output_length": 1, "hash_ids": [1]}', "wanted, not True"),
        (
            '{"timestamp": NaN, "input_length": 9, "output_length": 1, "hash_ids": [1]}',
            "line 1: a request arrives at nan s",
        ),
        ('{"timestamp": 1e999, "input_length": 9, "output_length": 1, "hash_ids": [1]}', "arrives at inf s"),
        ('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\nnull', "line 2: no JSON object"),
        ("", "is empty"),
        ("arrival_s,input_tokens,output_tokens,block_ids,block_size\n", "has no requests"),
        (
            "arrival_s,input_tokens,output_tokens,block_ids,block_size\n0,1,1,1,0\n",
            "block_size: must be at least 1, is 0",
        ),
        ("{nonsense", "line 1: Expecting"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2: Invalid isoformat"),
        ("arrival_s,input_tokens,output_tokens,block_ids,block_size\n0,x,1,1,16\n", "line 2: invalid literal"),
        ("a,b\n1,2\n", "neither JSON lines with timestamp"),
    ],
)
def test_an_error_says_where_and_what(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^trace: ") as caught:
        list(open_trace_file(written(tmp_path, text), None))
    assert message in str(caught.value)


def test_a_byte_that_is_no_text_is_told_wherever_it_is(tmp_path: Path) -> None:
    line = b'{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n'
    path = tmp_path / "trace"
    path.write_bytes(line * 5000 + b"\xff\n")
    with pytest.raises(ConfigError, match=r"trace: .* can't be read: 'utf-8' codec"):
        list(open_trace_file(path, None))


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffarrival_s,input_tokens,output_tokens,block_ids\r\n0,30,2,7 8\r\n")
    assert len(list(open_trace_file(path, 16))) == 1


def test_an_absent_file() -> None:
    with pytest.raises(ConfigError, match=r"trace: /absent can't be read"):
        open_trace_file(Path("/absent"), None)


def test_a_view_begins_at_zero_stretches_and_ends_early() -> None:
    trace = ListedTrace([TraceRequest(second, 10, 1, [1]) for second in (4.0, 5.0, 7.0)])
    view = TraceView(trace=trace, time_scale=2.0, max_requests=2)
    assert [request.arrival_s for request in view] == [0.0, 2.0]


def test_arrivals_must_be_in_order() -> None:
    trace = ListedTrace([TraceRequest(second, 10, 1, [1]) for second in (4.0, 3.0)])
    with pytest.raises(ConfigError, match="arrives at 3 s, after one at 4 s"):
        list(TraceView(trace=trace))
