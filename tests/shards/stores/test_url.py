"""Names of places in stores, and what is refused before anything is sent."""

from pathlib import Path

import pytest

from viewkit.cli.console import say
from viewkit.shards.artifact import refuse_inside
from viewkit.shards.dataset import Dataset, run_folder
from viewkit.shards.errors import ConfigError
from viewkit.shards.stores.answers import explain, may_pass
from viewkit.shards.stores.url import StoreURL, is_url, parse_url


@pytest.mark.parametrize("text", ["s3://b/x/y", "S3://b/x/y/", "s3:/b/x/y", "s3://b//x//y"])
def test_one_place_has_one_name(text):
    url = parse_url(text)
    assert url == StoreURL("s3", "b", "x/y") == parse_url(Path(text))
    assert (str(url), url.name, str(url.above(1)), url.above(2)) == ("s3://b/x/y", "y", "s3://b/x", None)
    assert (str(url.holder), str(url.holder.holder), url.holder.holder.name) == ("s3://b/x", "s3://b", "b")


def test_paths_and_sources_are_no_urls():
    assert not any(map(is_url, ["data", "/data", "a:b", "demo:train", "C:/data", "mosaic:s3://b/x", "s3/b"]))
    assert all(map(is_url, ["s3://b/x", "gs://b/x", "az://b/x", "https://b/x", "file:///x"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://b/x", "https://b/x: stores are named s3://BUCKET/PREFIX"),
        ("s3://b", "s3://b: needed is s3://BUCKET/PREFIX"),
        ("s3://b/../x", "has no '..'"),
        ("s3://key:word@b/x", "s3://b/x: credentials and options do not go into the URL"),
        ("az://b/x?sig=word", "az://b/x: credentials and options do not go into the URL"),
        ("ftp://me:word@b/x", "ftp://b/x: stores are named"),
    ],
)
def test_other_places_are_refused_in_one_line_that_repeats_no_secret(text, said):
    with pytest.raises(ConfigError) as caught:
        Dataset(text)
    assert said in str(caught.value) and "word" not in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_written_outside_of_datasets_is_local():
    with pytest.raises(ConfigError, match=r"export is s3://b/x\.safetensors, and a local path is needed"):
        refuse_inside(Path("s3://b/x.safetensors"), "export")


def test_a_run_is_named_as_its_dataset_has_it():
    assert run_folder("data/runs/a") == Path("data/runs/a")
    with pytest.raises(ConfigError, match="s3://b/data/a: this is no run; name one as DATASET/runs/NAME"):
        run_folder("s3://b/data/a")


ANSWER = "Server returned non-2xx status code: {}: <Error><Code>{}</Code><AWSAccessKeyId>AKID</AWSAccessKeyId></Error>"


@pytest.mark.parametrize(
    ("text", "said", "passes"),
    [
        (ANSWER.format("403 Forbidden", "AccessDenied"), "the store refuses it (403 AccessDenied); check the", False),
        (
            ANSWER.format("404 Not Found", "NoSuchBucket"),
            "s3://b/x: there is no bucket 'b'; create",
            False,
        ),
        (ANSWER.format("400 Bad Request", "EntityTooSmall"), "the store answers 400 EntityTooSmall; docs/", False),
        (ANSWER.format("503 Slow", "SlowDown"), "the store answers 503 SlowDown, for 7 s (VIEWKIT_STORE_PA", True),
        (
            ANSWER.format("409 Conflict", "ConditionalRequestConflict"),
            "answers 409 Conditional",
            True,
        ),
        ("Received non-partial response when range requested", "the store ignores the header Range", False),
        ("error sending request for AKID", "the store does not answer, for 7 s", True),
    ],
)
def test_an_answer_is_one_line_that_repeats_nothing_but_status_and_code(monkeypatch, text, said, passes):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "7")
    line = str(explain(parse_url("s3://b/x"), "images/000000.tar", text))
    assert said in line and "AKID" not in line and "\n" not in line and may_pass(text) == passes


def test_a_url_that_was_a_path_is_said_with_its_two_slashes(capsys):
    say(f"{Path('s3://b/x')}/y, {Path('az://c/y')}: gs://b/x, as3:/b, s3:/, C:/x")
    assert capsys.readouterr().out == "s3://b/x/y, az://c/y: gs://b/x, as3:/b, s3:/, C:/x\n"
