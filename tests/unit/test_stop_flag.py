"""What a signal means: now, after the epoch, or the same one again."""

import pytest

from recast_train.stopping import StopFlag


def test_while_loading_the_first_one_stops_at_once() -> None:
    flag = StopFlag()
    with pytest.raises(KeyboardInterrupt):
        flag.handle(2, None)


def test_once_it_trains_an_echo_is_no_second_wish() -> None:
    now = [10.0]
    flag = StopFlag(clock=lambda: now[0])
    flag.training = True
    assert not flag.is_set()
    flag.handle(2, None)
    assert flag.is_set()
    now[0] = 10.03  # the terminal's and the launcher's
    flag.handle(15, None)
    now[0] = 11.5
    with pytest.raises(KeyboardInterrupt):
        flag.handle(2, None)
