"""What a store's answers mean, in one line each: nothing of the server's words but its status and the name of its code,
since servers repeat parts of requests, and requests hold signatures."""

import re

from viewkit.shards.errors import ConfigError, DataError, ViewkitError
from viewkit.shards.stores.environment import CREDENTIALS, PATIENCE, has_credentials, patience_s
from viewkit.shards.stores.url import StoreURL

STATUS = re.compile(r"status code: (\d{3})")
WHOLE = "Received non-partial response"
"""obstore's word for a server that sends all of an object where a range was asked for."""
CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")


def may_pass(text: str) -> bool:
    """Whether a request that failed like this may work later: no answer, or one that asks for patience."""
    if WHOLE in text or "credential" in text.lower():
        return False
    status = STATUS.search(text)
    return status is None or int(status[1]) >= 500 or status[1] in ("408", "409", "429")


def explain(url: StoreURL, key: str, text: str) -> ViewkitError:
    """What happened and what to do, without a word of the server's but the name of its code."""
    where = f"{url}/{key}" if key else str(url)
    status, code = STATUS.search(text), CODE.search(text)
    said = " ".join(each[1] for each in (status, code) if each)
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        kind = "container" if url.scheme == "az" else "bucket"
        return DataError(f"{url}: there is no {kind} '{url.bucket}'; create it, or correct the name")
    if WHOLE in text:
        return DataError(
            f"{where}: the store ignores the header Range; docs/stores.md says what a store must be able to do"
        )
    if not has_credentials(url.scheme) and status is None:
        return ConfigError(
            f"{url}: no credentials in the environment, and this is no machine that the store knows; set "
            f"{CREDENTIALS[url.scheme][0]} and what belongs to it (docs/stores.md)"
        )
    if status is not None and status[1] in ("401", "403"):
        return DataError(
            f"{where}: the store refuses it ({said}); check the credentials in the environment, and that they may "
            "list, read and write there"
        )
    if status is not None and not may_pass(text):
        return DataError(f"{where}: the store answers {said}; docs/stores.md says what a store must be able to do")
    answered = f"answers {said}" if said else "does not answer"
    return DataError(
        f"{where}: the store {answered}, for {patience_s():g} s ({PATIENCE}); check the network and the endpoint in "
        "the environment, and run the same command again, nothing finished is lost"
    )
