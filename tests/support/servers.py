"""Servers of stores that are no Python modules, on this machine: azurite, s3rver and rclone, as `make setup-scale`
installs them."""

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from shutil import which

import pytest
from stopping import stop
from stores import BUCKET, ENVIRONMENT, SECRETS

INSTALLED = Path(__file__).parents[2] / "build" / "servers"
AZURITE = INSTALLED / "node_modules" / ".bin" / "azurite-blob"
S3RVER = INSTALLED / "node_modules" / ".bin" / "s3rver"
RCLONE = INSTALLED / "python" / "bin" / "rclone"
START_S = 60.0
AZURE_KEY = base64.b64encode(SECRETS[1].encode()).decode()
ACCOUNTS = {
    "nobodys": AZURE_KEY,
    # The emulator's own, the same everywhere and published by Microsoft; obstore knows it, too.
    "devstoreaccount1": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
}


def program(path: Path) -> str:
    """Its path; the test is skipped where it is not installed."""
    if not path.exists():
        pytest.skip(f"{path.name} is not installed here: make setup-scale")
    if path.parent.name == ".bin" and which("node") is None:
        pytest.skip(f"{path.name} needs node, which is not installed here")
    return str(path)


@contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """Microsoft's emulator of Azure's blobs, all of it in memory, with the accounts `ACCOUNTS` and a container in each;
    its port."""
    accounts = ";".join(f"{name}:{key}" for name, key in ACCOUNTS.items())
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort"]
    with _running([program(AZURITE), *options], folder, {"AZURITE_ACCOUNTS": accounts}) as port:
        for account in ACCOUNTS:
            _make_container(port, account)
        yield port


def azure_environment(port: int) -> dict[str, str]:
    """Variables for `azurite` as for any other server of Azure's API."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": "nobodys",
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/nobodys",
    }


def emulator_environment(port: int) -> dict[str, str]:
    """Variables for `azurite` as the emulator."""
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}"}


@contextmanager
def s3rver(folder: Path) -> Iterator[dict[str, str]]:
    """Variables under which it is reached. Its one account has a published name, and any signature will do."""
    (folder / "data").mkdir(parents=True)
    options = ["--directory", str(folder / "data"), "--address", "127.0.0.1", "--silent", "--no-vhost-buckets",
               "--allow-mismatched-signatures", "--configure-bucket", BUCKET, "--port"]  # fmt: skip
    with _running([program(S3RVER), *options], folder, {}) as port:
        yield {**ENVIRONMENT, "AWS_ACCESS_KEY_ID": "S3RVER", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


@contextmanager
def rclone(folder: Path) -> Iterator[dict[str, str]]:
    """Variables under which ``rclone serve s3`` of a folder is reached."""
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [program(RCLONE), "serve", "s3", str(folder / "data"), "--auth-key", ",".join(SECRETS), "--addr"]
    with _running(command, folder, {"RCLONE_CONFIG": os.devnull}, "127.0.0.1:") as port:
        yield {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


@contextmanager
def _running(command: Sequence[str], folder: Path, environment: Mapping[str, str], before: str = "") -> Iterator[int]:
    """The command with a free port as its last word; waits until that is open, and ends the process afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    with log.open("wb") as said:
        server = subprocess.Popen(
            [*command, f"{before}{port}"], env={**os.environ, **environment}, cwd=folder, stdout=said, stderr=said
        )
    try:
        until = time.monotonic() + START_S
        while not _answers(port):
            assert server.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield port
    finally:
        stop(server)


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _make_container(port: int, account: str) -> None:
    """By a request that is signed with the account's key, as obstore makes no containers."""
    path, version, date = f"/{account}/{BUCKET}", "2021-08-06", formatdate(usegmt=True)
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n/{account}{path}\nrestype:container"
    digest = hmac.digest(base64.b64decode(ACCOUNTS[account]), signed.encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("PUT", f"{path}?restype=container", headers=headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    assert answer.status == 201, said
