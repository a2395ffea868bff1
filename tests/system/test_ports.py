"""Where a fleet of one machine listens when nobody said otherwise."""

from __future__ import annotations

import ipaddress

import psutil

from slipstream.launcher import Cluster


def listening(pid: int) -> set[str]:
    return {
        connection.laddr.ip
        for connection in psutil.Process(pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def test_every_port_is_on_loopback(small_cluster: Cluster) -> None:
    """gRPC with its control services, HTTP with its metrics, and the index server, which asks for no password."""
    children = psutil.Process().children(recursive=True)
    names = {pid: listening(pid) for pid in {child.pid for child in children}}
    ports = {pid: addresses for pid, addresses in names.items() if addresses}
    served = {small_cluster.child("router-0").pid, *(worker.pid for worker in small_cluster.workers)}
    assert served <= ports.keys() and len(ports) > len(served)  # and the index server
    assert all(is_loopback(one) for addresses in ports.values() for one in addresses), ports
