"""Makes a failed assertion in a helper of the tests show its values, as one in a test does."""

import pytest

pytest.register_assert_rewrite("tests")
