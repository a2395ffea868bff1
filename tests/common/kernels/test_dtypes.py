from common.config import DType
from common.kernels.dtypes import TORCH_DTYPES
from common.kv.spec import ITEMSIZES


def test_what_settings_offer_has_a_dtype_and_a_size() -> None:
    assert set(TORCH_DTYPES) == set(DType) - {DType.AUTO}
    assert {name: dtype.itemsize for name, dtype in TORCH_DTYPES.items()} == ITEMSIZES
