"""The S3 store against a real server, and against what a network does to its replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from storage.objects import EtagAfterLoss, InvalidKey, StoreConfigurationError, StoreUnavailable
from storage.s3 import S3Credentials, S3Store
from tests.support.faultproxy import Act, Fault, FaultProxy, fault_proxy
from tests.support.seaweed import Seaweed

MINE, THEIRS = b'{"w": "mine"}', b'{"w": "theirs"}'


@pytest.fixture
async def proxy(seaweed: Seaweed) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(seaweed.endpoint_url) as running:
        yield running


@pytest.fixture
async def flaky(seaweed: Seaweed, proxy: FaultProxy) -> AsyncIterator[S3Store]:
    """The same objects as `steady`, seen through the proxy."""
    store = seaweed.store("shared", endpoint_url=proxy.endpoint_url, read_timeout_seconds=1.0)
    yield store
    await store.close()


@pytest.fixture
async def steady(seaweed: Seaweed) -> AsyncIterator[S3Store]:
    store = seaweed.store("shared")
    yield store
    await store.close()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{name}/k"


LOSSES: list[Callable[[], Fault]] = [
    lambda: Fault(Act.CUT_REPLY),
    lambda: Fault(Act.HOLD_REPLY),
    lambda: Fault(Act.REPLACE_REPLY, status=500),
    lambda: Fault(Act.REPLACE_REPLY, status=503, code="ServiceUnavailable"),
    lambda: Fault(Act.REPLACE_REPLY, status=409, code="ConditionalRequestConflict"),
    lambda: Fault(Act.REPLACE_REPLY, status=503, code="SlowDown"),
]
LOSS_NAMES = ["cut", "held", "500", "503", "409", "throttled-but-done"]


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_NAMES)
async def test_a_creation_whose_reply_was_lost_is_found_stored(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str, loss: Callable[[], Fault]
) -> None:
    """Conditional writes tell a lost reply from a lost race."""
    proxy.add(loss())
    etag = await flaky.put(key, MINE, if_absent=True)
    found = await steady.get(key)
    assert found is not None and found.body == MINE
    assert isinstance(etag, EtagAfterLoss) and etag == found.etag


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_NAMES)
async def test_a_creation_that_lost_the_race_and_its_reply_is_refused(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str, loss: Callable[[], Fault]
) -> None:
    """Conditional writes tell a lost reply from a lost race."""
    await steady.put(key, THEIRS)
    proxy.add(loss())
    assert await flaky.put(key, MINE, if_absent=True) is None
    found = await steady.get(key)
    assert found is not None and found.body == THEIRS


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_NAMES)
async def test_a_replacement_whose_reply_was_lost_is_found_stored(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str, loss: Callable[[], Fault]
) -> None:
    """Conditional writes tell a lost reply from a lost race."""
    before = await steady.put(key, b"before")
    proxy.add(loss())
    etag = await flaky.put(key, MINE, if_match=before)
    found = await steady.get(key)
    assert found is not None and found.body == MINE
    assert isinstance(etag, EtagAfterLoss) and etag == found.etag


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_NAMES)
async def test_a_replacement_that_lost_the_race_and_its_reply_is_refused(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str, loss: Callable[[], Fault]
) -> None:
    """Conditional writes tell a lost reply from a lost race."""
    before = await steady.put(key, b"before")
    await steady.put(key, THEIRS)
    proxy.add(loss())
    assert await flaky.put(key, MINE, if_match=before) is None
    found = await steady.get(key)
    assert found is not None and found.body == THEIRS


async def test_a_write_overtaken_before_its_lost_reply_was_noticed_is_refused(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str
) -> None:
    """What is there belongs to another by then, so the writer must not go on."""
    before = await steady.put(key, b"before")
    fault = proxy.add(Fault(Act.CUT_REPLY, meanwhile=asyncio.Event()))
    writing = asyncio.create_task(flaky.put(key, MINE, if_match=before))
    await fault.struck.wait()
    await steady.put(key, THEIRS)
    assert fault.meanwhile is not None
    fault.meanwhile.set()
    assert await writing is None


async def test_a_creation_cleaned_away_before_its_lost_reply_was_noticed_says_so(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str
) -> None:
    """The slot is empty again and the write succeeds in it: its owner has to look at the head first."""
    fault = proxy.add(Fault(Act.CUT_REPLY, meanwhile=asyncio.Event()))
    writing = asyncio.create_task(flaky.put(key, MINE, if_absent=True))
    await fault.struck.wait()
    await steady.delete([key])
    assert fault.meanwhile is not None
    fault.meanwhile.set()
    assert isinstance(await writing, EtagAfterLoss)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Act.CUT_REQUEST),
        Fault(Act.ANSWER, status=503, code="SlowDown", times=3),
        Fault(Act.ANSWER, status=429, code="TooManyRequests"),
        Fault(Act.ANSWER, status=400, code="RequestTimeout"),
    ],
    ids=["cut", "slow-down", "429", "timeout"],
)
async def test_a_write_that_never_got_through_is_repeated(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str, fault: Fault
) -> None:
    """Throttling is waited out."""
    proxy.add(fault)
    assert await flaky.put(key, MINE, if_absent=True) is not None
    found = await steady.get(key)
    assert found is not None and found.body == MINE


async def test_a_refusal_on_the_first_try_is_taken_at_its_word(steady: S3Store, key: str) -> None:
    """Equal bytes written twice are two writers, when no reply was lost."""
    assert type(await steady.put(key, MINE, if_absent=True)) is str
    gets = steady.requests["get"]
    assert await steady.put(key, MINE, if_absent=True) is None
    assert steady.requests["get"] == gets


async def test_no_write_is_repeated_behind_the_stores_back(
    flaky: S3Store, proxy: FaultProxy, key: str
) -> None:
    """A silent repetition would be a lost reply that nobody sees."""
    proxy.add(Fault(Act.ANSWER, status=500, times=2))
    await flaky.put(key, MINE, if_absent=True)
    assert flaky.requests["put"] == sum(line.startswith("PUT") for line in proxy.seen) == 3


async def test_reads_listings_and_deletions_survive_lost_replies(
    flaky: S3Store, steady: S3Store, proxy: FaultProxy, key: str
) -> None:
    """None of them changes anything by being done twice."""
    await steady.put(key, MINE)
    for method in ("GET", "GET", "POST"):
        proxy.add(Fault(Act.CUT_REPLY, method=method))
    found = await flaky.get(key)
    assert found is not None and found.body == MINE
    assert [item.key async for item in flaky.list(key)] == [key]
    await flaky.delete([key])
    assert await steady.get(key) is None
    assert all(fault.times == 0 for fault in proxy.faults)


async def test_an_outage_longer_than_the_store_waits_is_unavailable_and_retryable(
    seaweed: Seaweed, proxy: FaultProxy, key: str
) -> None:
    """The outcome is unknown, and the error says which write."""
    proxy.add(Fault(Act.ANSWER, status=503, times=1000))
    proxy.add(Fault(Act.ANSWER, method="GET", status=503, times=1000))
    store = seaweed.store(endpoint_url=proxy.endpoint_url, retry_seconds=0.5)
    with pytest.raises(StoreUnavailable, match=r"put .*InternalError") as caught:
        await store.put(key, MINE, if_absent=True)
    assert caught.value.retryable and caught.value.key == key
    await store.close()


async def test_a_missing_bucket_is_one_clear_line(seaweed: Seaweed, key: str) -> None:
    """Misconfiguration is told apart from an outage."""
    store = seaweed.store(bucket="nowhere")
    for work in (store.get(key), store.put(key, b"x"), store.delete([key]), store.check()):
        with pytest.raises(StoreConfigurationError, match=r"s3://nowhere/.*: the bucket does not exist"):
            await work
    await store.close()


@pytest.mark.parametrize(
    ("access_key", "problem"),
    [("testkey", "secret access key does not fit"), ("stranger", "access key id is unknown")],
)
async def test_bad_credentials_are_one_clear_line_without_the_secret(
    seaweed: Seaweed, key: str, access_key: str, problem: str
) -> None:
    """Misconfiguration is told apart from an outage."""
    store = seaweed.store(credentials=S3Credentials(access_key, "not-the-secret"))
    with pytest.raises(StoreConfigurationError, match=problem) as caught:
        await store.put(key, b"x")
    assert "not-the-secret" not in str(caught.value) + repr(store) + repr(
        S3Credentials("a", "not-the-secret")
    )
    await store.close()


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (403, "RequestTimeTooSkewed", "clock"),
        (403, "AccessDenied", "s3:PutObject"),
        (400, "ExpiredToken", "session token has expired"),
        (301, "PermanentRedirect", "region or endpoint"),
        (501, "NotImplemented", "conditional writes"),
        (400, "EntityTooLarge", "EntityTooLarge: made up by a test"),
    ],
)
async def test_what_only_a_person_can_mend_is_not_repeated(
    flaky: S3Store, proxy: FaultProxy, key: str, status: int, code: str, problem: str
) -> None:
    """Misconfiguration is told apart from an outage."""
    proxy.add(Fault(Act.ANSWER, status=status, code=code, times=1000))
    with pytest.raises(StoreConfigurationError, match=problem):
        await flaky.put(key, b"x", if_absent=True)
    assert flaky.requests["put"] == 1


async def test_an_endpoint_that_does_not_answer_fails_the_check_by_name(seaweed: Seaweed) -> None:
    """A process asks before it relies on the store."""
    store = seaweed.store(endpoint_url="http://127.0.0.1:1")
    with pytest.raises(StoreConfigurationError, match=r"at http://127.0.0.1:1: cannot reach the endpoint"):
        await store.check()
    await store.close()


async def test_a_malformed_endpoint_is_named(seaweed: Seaweed, key: str) -> None:
    """Misconfiguration is told apart from an outage."""
    store = seaweed.store(endpoint_url="nonsense")
    with pytest.raises(StoreConfigurationError, match="nonsense"):
        await store.get(key)
    await store.close()


async def test_the_check_passes_on_a_good_store_and_leaves_nothing(s3_store: S3Store) -> None:
    """A process asks before it relies on the store."""
    await s3_store.check()
    assert [item.key async for item in s3_store.list("")] == []


async def test_a_server_that_ignores_conditions_is_refused(flaky: S3Store, proxy: FaultProxy) -> None:
    """Ruling 21: the fleet refuses a store without conditional writes."""
    proxy.add(Fault(Act.ANSWER, status=200, times=3))
    with pytest.raises(StoreConfigurationError, match="ignores the conditions"):
        await flaky.check()


async def test_objects_lie_below_the_prefix_and_the_prefix_is_never_seen(seaweed: Seaweed) -> None:
    """05 §5: the prefix never appears in any path."""
    store, client = seaweed.store("/team/a/"), seaweed.client()
    await store.put("S/head", b"x")
    assert client.get_object(Bucket=seaweed.bucket, Key="team/a/S/head")["Body"].read() == b"x"
    client.put_object(Bucket=seaweed.bucket, Key="team/ab/other", Body=b"x")
    client.put_object(Bucket=seaweed.bucket, Key="team/a/no key", Body=b"x")
    assert [item.key async for item in store.list("")] == ["S/head"]
    await store.close()
    client.close()


async def test_a_prefix_outside_the_safe_alphabet_is_refused() -> None:
    """Keys are of the safe alphabet, the operator's part included."""
    for prefix in ("a b", "a/../b", "a//b", "é", "x" * 200):
        with pytest.raises(StoreConfigurationError, match="the prefix"):
            S3Store("bucket", prefix)


async def test_a_key_for_an_encryption_without_keys_is_refused() -> None:
    """SSE configuration fails at start, not at the first write."""
    with pytest.raises(StoreConfigurationError, match="KMS key"):
        S3Store("bucket", kms_key_id="k")
    with pytest.raises(StoreConfigurationError, match="KMS key"):
        S3Store("bucket", sse="AES256", kms_key_id="k")


async def test_server_side_encryption_is_asked_for_with_every_write(seaweed: Seaweed, key: str) -> None:
    """SSE configuration."""
    store, client = seaweed.store("sse", sse="AES256"), seaweed.client()
    await store.put(key, b"secret", if_absent=True)
    assert client.head_object(Bucket=seaweed.bucket, Key=f"sse/{key}")["ServerSideEncryption"] == "AES256"
    found = await store.get(key)
    assert found is not None and found.body == b"secret"
    await store.close()
    client.close()


async def test_a_deletion_takes_one_request_per_thousand_keys(s3_store: S3Store) -> None:
    """H24: all of more than a page are deleted."""
    await s3_store.delete(f"missing/{number}" for number in range(2001))
    assert s3_store.requests["delete"] == 3


async def test_no_request_is_sent_for_an_unsafe_key(s3_store: S3Store) -> None:
    """H23: refused before the server is asked."""
    for key in ("a//b", "a b", "trailing/", "./x"):
        with pytest.raises(InvalidKey):
            await s3_store.get(key)
    assert not s3_store.requests


async def test_a_write_is_one_round_trip(flaky: S3Store, proxy: FaultProxy, key: str) -> None:
    """Nothing waits for a permission to send the body."""
    await flaky.put(key, b"x")
    assert len(proxy.heads) == 1 and b"expect:" not in proxy.heads[0].lower()


async def test_making_a_store_connects_to_nothing() -> None:
    """The client is made by the first request, off the event loop."""
    store = S3Store("bucket", endpoint_url="http://127.0.0.1:1")
    await store.close()
    assert not store.requests
