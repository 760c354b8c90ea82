from __future__ import annotations

import socket

import pytest

from archmax.local.ports import PortTaken, free_port, require_free


def test_a_port_that_is_taken_is_named_with_the_option_that_chooses_another():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken) as refused:
            require_free("the API", "127.0.0.1", port, "--port")
    assert str(refused.value) == (
        f"the API cannot listen on 127.0.0.1:{port} (Address already in use); choose another with --port"
    )


def test_a_free_port_and_one_just_given_up_are_fine():
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
    require_free("Flower", "127.0.0.1", port, "--flower-port")


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1"):
        require_free("the API", "192.0.2.1", free_port(), "--port")
