"""The pages in a real browser: a refund is found, read and decided; by keyboard, on a phone, without scripts, in the dark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import chromium, complaints, resize
from tests.support.desk import ADMIN, CLERK, CLERK_NAME, bearer, hostile, refund
from tests.support.fleet import RunningFleet, run_turn

T = TypeVar("T")


@pytest.fixture(scope="module")
def shared() -> Generator[WebDriver]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(shared: WebDriver) -> WebDriver:
    """Nobody is signed in; the window is a desktop's."""
    shared.get("about:blank")
    shared.execute_cdp_cmd("Network.clearBrowserCookies", {})
    resize(shared, 1280, 900)
    complaints(shared)
    return shared


def wait(browser: WebDriver, holds: Callable[[], T | None]) -> T:
    """What `holds` gives once it is true; a part the page has just replaced is looked for again."""
    return WebDriverWait(
        browser,
        90,
        poll_frequency=0.1,
        ignored_exceptions=[NoSuchElementException, StaleElementReferenceException],
    ).until(lambda _browser: holds() or False)


def text(browser: WebDriver) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def await_text(browser: WebDriver, words: str) -> None:
    wait(browser, lambda: words in text(browser))


def sign_in(browser: WebDriver, desk: RunningFleet, key: str, path: str = "/ui") -> None:
    browser.get(f"{desk.url}{path}")
    browser.find_element(By.ID, "key").send_keys(key, Keys.ENTER)
    wait(browser, lambda: "/ui/login" not in browser.current_url)


def named(browser: WebDriver, tag: str, words: str) -> WebElement:
    return wait(
        browser, lambda: next((e for e in browser.find_elements(By.TAG_NAME, tag) if words in e.text), None)
    )


def overflow(browser: WebDriver) -> int:
    return int(browser.execute_script("return document.documentElement.scrollWidth - innerWidth"))


async def test_a_refund_is_found_read_and_decided_and_its_session_completes(
    desk: RunningFleet, browser: WebDriver
) -> None:
    await refund(desk, "browser-1")

    def review() -> None:
        sign_in(browser, desk, CLERK)
        assert browser.current_url.endswith("/ui/inbox"), "something waits, so the inbox is first"
        browser.find_element(By.CSS_SELECTOR, "a[href='/ui/inbox?session=browser-1']").click()
        await_text(browser, "Confirm the decision")
        shown = text(browser)
        assert (
            '"decision": "approved"' in shown and "Compare the decision with the customer's request" in shown
        )
        assert f"You decide as {CLERK_NAME}" in shown and "The decision stands." in shown
        browser.find_element(By.ID, "comment").send_keys("Checked with the photos.")
        named(browser, "button", "Approve: Tell the confirmed decision").click()
        # the page itself goes on to the end: nobody reloads it
        wait(browser, lambda: "completed" in browser.find_element(By.CSS_SELECTOR, ".head .badge").text)
        await_text(browser, "Your refund for SO-4101 is approved.")
        assert f"{CLERK_NAME} decided refund-closed" in text(browser)
        assert "Checked with the photos." in text(browser)
        assert not complaints(browser)

    await asyncio.to_thread(review)
    async with desk.client(headers=bearer(ADMIN)) as api:
        assert (await api.get("/v1/sessions/browser-1")).json()["status"] == "completed"


async def test_everything_is_done_by_keyboard(desk: RunningFleet, browser: WebDriver) -> None:
    await refund(desk, "keys-1")

    def review() -> None:
        def press(*keys: str) -> None:
            browser.switch_to.active_element.send_keys(*keys)

        def go(key: str, path: str) -> None:
            press("g", key)
            wait(browser, lambda: browser.current_url.endswith(path))

        browser.get(f"{desk.url}/ui/inbox")
        assert browser.switch_to.active_element.get_attribute("id") == "key", (
            "the field to type in has the focus"
        )
        press(CLERK, Keys.ENTER)
        wait(browser, lambda: browser.current_url.endswith("/ui/inbox"))
        go("d", "/ui/dead-letters")
        go("t", "/ui/schedules")
        go("s", "/ui/sessions")
        press("/")
        press("keys-1", Keys.ENTER)
        wait(browser, lambda: "q=keys-1" in browser.current_url)
        press("j")
        assert browser.switch_to.active_element.get_attribute("href") == f"{desk.url}/ui/sessions/keys-1"
        assert (
            browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        )
        press(Keys.ENTER)
        await_text(browser, "Confirm the decision")
        press("?")
        wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
        press(Keys.ESCAPE)
        press("c")
        press("By keyboard.")
        # a number moves the focus and decides nothing by itself; Tab leads through the rest
        press(Keys.TAB)
        press("2")
        assert "Send back" in browser.switch_to.active_element.text
        press("1")
        assert "Approve" in browser.switch_to.active_element.text
        press(Keys.ENTER)
        await_text(browser, "Your refund for SO-4101 is approved.")
        assert "By keyboard." in text(browser)

    await asyncio.to_thread(review)


async def test_tab_alone_reaches_every_control_of_a_decision(desk: RunningFleet, browser: WebDriver) -> None:
    await refund(desk, "tab-1")

    def walk() -> None:
        sign_in(browser, desk, CLERK, "/ui/inbox?session=tab-1")
        await_text(browser, "Confirm the decision")
        reached: list[str] = []
        for _ in range(60):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            at = browser.switch_to.active_element
            if at.tag_name == "body":
                break
            reached.append(at.get_attribute("name") or at.get_attribute("href") or at.text)
        assert reached[0].endswith("#main"), "the first stop skips the bar"
        assert reached.count("to") == 2 and "comment" in reached
        assert any(place.endswith("scratchpad/refund.json") for place in reached)

    await asyncio.to_thread(walk)


async def test_a_phone_needs_no_sideways_scrolling_and_decides(
    desk: RunningFleet, browser: WebDriver
) -> None:
    await refund(desk, "phone-1")
    await hostile(desk, "phone-2")
    async with desk.client(headers=bearer(ADMIN)) as api:
        await run_turn(api, "/v1/workflows/waiter/sessions", {"sessionId": "w" * 120, "message": "x" * 500})

    def review() -> None:
        resize(browser, 360)
        browser.get(f"{desk.url}/ui/login")
        assert overflow(browser) <= 0
        sign_in(browser, desk, CLERK)
        for path in (
            "/ui/inbox", "/ui/inbox?session=phone-1", "/ui/inbox?session=phone-2", "/ui/sessions", "/ui/sessions/phone-1",
            "/ui/sessions/phone-2", "/ui/sessions/" + "w" * 120, "/ui/schedules", "/ui/dead-letters", "/ui/nothing",
        ):  # fmt: skip
            browser.get(f"{desk.url}{path}")
            assert overflow(browser) <= 0, path
        browser.get(f"{desk.url}/ui/inbox?session=phone-1")
        button = named(browser, "button", "Approve")
        assert button.size["height"] >= 44, "large enough for a thumb"
        button.click()
        await_text(browser, "Your refund for SO-4101 is approved.")

    await asyncio.to_thread(review)


async def test_hostile_text_runs_nothing(desk: RunningFleet, browser: WebDriver) -> None:
    await hostile(desk, "runs-1")

    def look() -> None:
        sign_in(browser, desk, CLERK)
        for path in ("/ui/inbox?session=runs-1", "/ui/sessions/runs-1", "/ui/sessions", "/ui/schedules"):
            browser.get(f"{desk.url}{path}")
            assert "<script>alert(1)</script>" in text(browser), path
            assert not complaints(browser), path  # an alert would also fail every call after it

    await asyncio.to_thread(look)


async def test_what_someone_writes_stays_while_the_page_lives(desk: RunningFleet, browser: WebDriver) -> None:
    await refund(desk, "writes-1")

    def write() -> None:
        sign_in(browser, desk, CLERK, "/ui/inbox?session=writes-1")
        browser.find_element(By.ID, "comment").send_keys("half a sent")

    await asyncio.to_thread(write)
    await refund(desk, "writes-2")

    def still() -> None:
        wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "a[href='/ui/inbox?session=writes-2']"))
        assert browser.find_element(By.ID, "comment").get_property("value") == "half a sent"

    await asyncio.to_thread(still)


async def test_without_scripts_a_refund_is_decided_too(desk: RunningFleet) -> None:
    await refund(desk, "plain-1")

    def review() -> None:
        with chromium(scripts=False, dark=True) as browser:
            sign_in(browser, desk, CLERK, "/ui/sessions/plain-1")
            named(browser, "button", "Approve").click()
            # a running session's page asks for itself again
            wait(browser, lambda: "completed" in browser.find_element(By.CSS_SELECTOR, ".head .badge").text)
            ground = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
            assert ground == "rgba(20, 24, 27, 1)", "the dark scheme is used where it is asked for"

    await asyncio.to_thread(review)


async def test_every_field_has_a_label_and_every_text_its_contrast(
    desk: RunningFleet, browser: WebDriver
) -> None:
    await refund(desk, "labels-1")

    def look() -> None:
        sign_in(browser, desk, CLERK)
        for path in (
            "/ui/inbox?session=labels-1",
            "/ui/sessions",
            "/ui/sessions/labels-1",
            "/ui/schedules",
            "/ui/dead-letters",
        ):
            browser.get(f"{desk.url}{path}")
            bare = browser.execute_script(
                "return [...document.querySelectorAll('input:not([type=hidden]),select,textarea')]"
                ".filter(f => !f.labels.length).map(f => f.outerHTML)"
            )
            assert bare == [], path
            ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
            assert len(ids) == len(set(ids)), path
            assert browser.execute_script(_FAINT) == [], path
            assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1 and browser.title

    await asyncio.to_thread(look)


#: texts whose contrast with what they stand on is below 4.5 (WCAG 2.1, 1.4.3)
_FAINT = """
const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
const lum = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const found = [];
for (const e of document.querySelectorAll('main *:not(svg *), header *')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const [a, b] = [lum(rgb(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
  if ((a + .05) / (b + .05) < 4.5) found.push(e.outerHTML.slice(0, 120));
}
return found;
"""
