"""How a store is reached: credentials and endpoint by the environment, where obstore looks for them as the stores' own
tools do; they are in no option, config, file or message."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.shards.errors import ConfigError
from viewkit.shards.stores.url import StoreURL

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE, PATIENCE_S = "VIEWKIT_STORE_PATIENCE_S", 120.0
REQUEST_S = 30
"""One request that has no answer by then is given up and sent again."""
LONGEST_PAUSE_S = 5.0
CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
    ),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY",
           "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SKIP_SIGNATURE"),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY",
           "AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_SKIP_SIGNATURE",
           "AZURE_STORAGE_USE_EMULATOR"),
}  # fmt: skip
"""Variables of which one says where credentials are; without any, only a machine of the provider's own has some."""
ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables that name another server than the provider's; one that begins with http:// is then used without TLS."""
GCLOUD = Path("~/.config/gcloud/application_default_credentials.json")
"""Where Google's own tool leaves credentials, and where obstore looks."""
OWN_MACHINE_S = 10.0
"""Patience with a machine of the provider's own, which is asked for credentials where the environment has none."""


def patience_s() -> float:
    """``$VIEWKIT_STORE_PATIENCE_S``: for how long a request is repeated. `ConfigError` for what is no time."""
    text = os.environ.get(PATIENCE, str(PATIENCE_S))
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= 86400:
        raise ConfigError(f"{PATIENCE} is {text[:40]!r}; it must be a number of seconds above 0, e.g. {PATIENCE_S:g}")
    return found


def has_credentials(scheme: str) -> bool:
    """Whether the environment says where credentials are (`CREDENTIALS`); they are not tried. scheme: of `SCHEMES`."""
    left_by_gcloud = scheme == "gs" and GCLOUD.expanduser().exists()
    return left_by_gcloud or any(os.environ.get(name) for name in CREDENTIALS[scheme])


def open_store(url: StoreURL) -> "ObjectStore":
    """obstore's object, which sends nothing yet. `ConfigError` where obstore is missing or the environment unusable."""
    try:
        from obstore import exceptions, store
    except ImportError:
        raise ConfigError(
            f"{url}: stores take the package obstore; pip install '.[cloud]', where viewkit's source is"
        ) from None
    wait = patience_s() if has_credentials(url.scheme) else min(patience_s(), OWN_MACHINE_S)
    retry: Any = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=wait),
        "backoff": {
            "init_backoff": timedelta(seconds=0.1),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE_S),
            "base": 2,
        },
    }
    plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS[url.scheme])
    client: Any = {"timeout": timedelta(seconds=REQUEST_S), **({"allow_http": True} if plain else {})}
    kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    try:
        opened: ObjectStore = kinds[url.scheme](
            url.bucket, prefix=url.prefix or None, client_options=client, retry_config=retry
        )
    except (exceptions.BaseError, ValueError, OSError):  # it may repeat what it read
        raise ConfigError(
            f"{url}: the environment does not say how to reach the store; docs/stores.md lists the variables for {url.scheme}://"
        ) from None
    return opened
