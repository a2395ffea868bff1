from common.engine.output_forecast import INITIAL_TOKENS, MIN_HISTORY, OutputForecast
from common.request import SamplingParams

UNBOUNDED = SamplingParams(seed=1)


def test_nothing_is_learned_from_a_few() -> None:
    forecast = OutputForecast()
    for _ in range(MIN_HISTORY - 1):
        forecast.observe(500)
    assert forecast.remaining_tokens(UNBOUNDED, 0) == INITIAL_TOKENS


def test_a_percentile_of_past_lengths_is_expected() -> None:
    forecast = OutputForecast()
    for length in range(1, 102):
        forecast.observe(length)
    assert forecast.remaining_tokens(UNBOUNDED, 0) == 71
    assert forecast.remaining_tokens(UNBOUNDED, 50) == 21
    assert forecast.remaining_tokens(UNBOUNDED, 400) == 1, "a longer answer may still go on"


def test_no_more_is_expected_than_is_allowed() -> None:
    forecast = OutputForecast(fixed_tokens=100)
    assert forecast.remaining_tokens(SamplingParams(seed=1, max_tokens=10), 4) == 6
    assert forecast.remaining_tokens(UNBOUNDED, 0) == 100


def test_old_lengths_are_forgotten() -> None:
    forecast = OutputForecast()
    for length in [1000] * 300 + [10] * 256:
        forecast.observe(length)
    assert forecast.remaining_tokens(UNBOUNDED, 0) == 10
