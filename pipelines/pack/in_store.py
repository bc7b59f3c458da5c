"""Sources in object stores: what lies below a prefix is listed as a folder is, so the dataset is the same."""

from pathlib import Path

from viewkit.pipelines.pack.listing import ARCHIVES, Found, Listing, kind_of_archive, sorted_listing
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.stores.cache import LIMIT, cache_limit
from viewkit.shards.stores.folder import StoredFolder, mount_folder
from viewkit.shards.stores.mounts import mirror_of
from viewkit.shards.stores.url import parse_url


def list_store(source: str, leave_out: Path | None) -> tuple[StoredFolder, Listing]:
    """The folder and what is in it; a single archive is a listing of one. leave_out: a dataset, which may lie below.

    `DataError` where there is nothing, `ConfigError` for archives that the cache has no room for.
    """
    url = parse_url(source)
    single = kind_of_archive(url.name) is not None
    above = url.holder if single else url
    folder, skipped = mount_folder(above), None if leave_out is None else mirror_of(leave_out)
    own = "" if skipped is None else f"{skipped.url}/"
    listing = Listing()
    for path, entry in folder.listing(url.name if single else None).items():
        if not (own and f"{above}/{path}".startswith(own)):
            listing.add(Found(path, entry.size))
    archives = [found for kind in ARCHIVES for found in getattr(listing, kind)]
    if not archives and not listing.images and not listing.others:
        raise DataError(f"pack: the source '{url}' does not exist, or is empty")
    size = sum(found.size for found in archives)
    if archives and not listing.images and size > cache_limit():
        raise ConfigError(
            f"pack: the archives of '{url}' have {size} bytes and are read in any order, and {LIMIT} allows "
            f"{cache_limit()}; allow more, or pack them in parts"
        )
    return folder, sorted_listing(listing)
