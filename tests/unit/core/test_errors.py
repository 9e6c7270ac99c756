"""The error tree: what a caller can catch."""

import inspect

import pytest

from kernelmill.core import errors


def test_everything_hangs_from_one_root():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    raised = [c for c in classes if c.__module__ == errors.__name__]
    assert all(issubclass(c, errors.KernelmillError) for c in raised)
    assert [c.__name__ for c in raised if c.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.ConfigTypeError, TypeError),
        (errors.ConfigPathError, FileNotFoundError),
        (errors.InputError, ValueError),
    ],
)
def test_errors_of_users_are_also_pythons(error, builtin):
    with pytest.raises(builtin, match="say so"):
        raise error("say so")


def test_a_verification_error_names_the_pass():
    error = errors.VerificationError("%3 is used before it is set", "fold_constants")
    assert error.stage == "fold_constants"
    assert str(error) == "after fold_constants: %3 is used before it is set"
