"""The page of a run in headless Chromium: renders, sorts, by keyboard too, loads nothing, hostile names do nothing."""

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from counting import rows_of
from test_report import HOSTILE

import dask_nlis as nlis

pytestmark = pytest.mark.browser

N = 500
X, Y = rows_of(101, N, len(HOSTILE))
CHROMIUM = "/usr/bin/chromium"

#: Text on its ground, as WCAG 2 counts it, for every element that holds text; the least first.
CONTRAST = """() => {
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const rgba = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const out = [];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || e.closest("[hidden], script, title")) continue;
    const style = getComputedStyle(e), ink = rgba(e instanceof SVGElement ? style.fill : style.color), back = ground(e);
    const opacity = ink[3] * (e instanceof SVGElement ? Number(style.fillOpacity) : 1);
    const mixed = ink.slice(0, 3).map((v, k) => v * opacity + back[k] * (1 - opacity));
    const [a, b] = [light(mixed), light(back)].sort((p, q) => q - p);
    out.push([(a + 0.05) / (b + 0.05), e.tagName, e.textContent.trim().slice(0, 40)]);
  }
  return out.sort((p, q) => p[0] - q[0]).slice(0, 3);
}"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Pages of three runs: hostile names; rows that are images; an active constraint."""
    pd = pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("pages")
    frame = pd.DataFrame(X, columns=HOSTILE)
    single = nlis.SingleIndex(nlis.Tanh())
    pixels = np.random.default_rng(8).uniform(size=(300, 36))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.NlisWarning)
        names = nlis.run(nlis.Problem(single), frame, Y, size="auto", epsilon=0.3, seed=0)
        images = nlis.run(nlis.Problem(nlis.Linear()), pixels, pixels.sum(axis=1), size=150, seed=0)
        active = nlis.run(nlis.Problem(single, constraint=nlis.Ball(0.1)), X, Y, size=150, seed=0)
    made = {
        "names": names.report(folder / "names.html"),
        "images": images.report(folder / "images.html", X=pixels, image_shape=(6, 6)),
        "active": active.report(folder / "active.html", X=X),
    }
    with nlis.monitor(folder / "monitor.html", progress=False):
        nlis.total_loss(nlis.Problem(single), X, Y, np.ones(len(HOSTILE) + 1))
    return {name: Path(page.path) for name, page in made.items()} | {"monitor": folder / "monitor.html"}


@pytest.fixture(scope="module")
def chromium():
    sync = pytest.importorskip("playwright.sync_api")
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"no browser at {CHROMIUM}")
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, paths):
    """Open a page; at the end there was no message, no error, and no request but for the page itself."""
    seen, contexts = [], []

    def opened(name, width=1100, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        url = paths[name].as_uri()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None if request.url == url or request.url.startswith("data:image/png") else seen.append(request.url)
            ),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not seen


def cells(page, table, column):
    """Numbers or texts of a column, in the order on the page."""
    return page.evaluate(
        """([table, column]) => [...document.querySelectorAll("table.sortable")[table].tBodies[0].rows].map((row) => {
          const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent.trim()
            : cell.dataset.value === "" ? null : Number(cell.dataset.value); })""",
        [table, column],
    )


def is_sorted(values, order):
    known = [value for value in values if value is not None]
    assert values == known + [None] * (len(values) - len(known))  # what is not known comes last
    return known == sorted(known, reverse=order == "descending")


@pytest.mark.parametrize("name", ["names", "images", "active"])
def test_every_column_of_every_table_sorts_both_ways(visit, name):
    page = visit(name)
    tables = page.locator("table.sortable")
    assert tables.count() >= 3
    for table in range(tables.count()):
        heads = tables.nth(table).locator("thead th")
        for column in range(heads.count()):
            button = heads.nth(column).locator("button")
            if not button.count():
                continue
            before = sorted(map(repr, cells(page, table, column)))
            orders = []
            for _ in range(2):
                button.click()
                orders.append(heads.nth(column).get_attribute("aria-sort"))
                found = cells(page, table, column)
                assert sorted(map(repr, found)) == before
                if all(value is None or isinstance(value, int | float) for value in found):
                    assert is_sorted(found, orders[-1]), (table, column, orders)
            assert set(orders) == {"ascending", "descending"}
            assert tables.nth(table).locator("[aria-sort]").count() == 1


def test_the_page_is_used_by_keyboard_alone(visit):
    page = visit("active")
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => { const e = document.activeElement; const s = getComputedStyle(e);
              return [e.tagName, e.textContent.trim(), s.outlineStyle, parseFloat(s.outlineWidth)]; }"""
        )
        if focus[0] == "BODY":
            break
        reached.append(focus[:2])
        assert focus[2] != "none", focus
        assert focus[3] >= 2, focus
        if focus[:2] == ["BUTTON", "estimate"]:
            page.keyboard.press("Enter")
            assert is_sorted(cells(page, 2, 1), "descending")
            page.keyboard.press("Space")
            assert is_sorted(cells(page, 2, 1), "ascending")
            assert page.evaluate("document.activeElement.textContent") == "estimate"
        if focus[0] == "SUMMARY":
            page.keyboard.press("Enter")
            assert page.locator("details").first.get_attribute("open") is not None
    buttons = [text for tag, text in reached if tag == "BUTTON"]
    assert len(buttons) == page.locator("button").count()
    assert sum(tag == "A" for tag, _ in reached) == page.locator("nav a").count()
    assert any(tag == "SUMMARY" for tag, _ in reached)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["names", "images", "active"])
def test_text_has_contrast_in_light_and_dark_and_the_switch_changes_them(visit, name, scheme):
    page = visit(name, scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    for _ in range(2):
        worst = page.evaluate(CONTRAST)
        assert worst[0][0] >= 4.5, worst
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        is_dark = sum(map(int, re.findall(r"\d+", ground)[:3])) < 200
        assert is_dark is (scheme == "dark")
        assert page.locator("#theme").get_attribute("aria-pressed") == str(is_dark).lower()
        page.locator("#theme").click()
        scheme = "light" if is_dark else "dark"


@pytest.mark.parametrize("width", [320, 375, 768, 1400])
@pytest.mark.parametrize("name", ["names", "images", "active"])
def test_nothing_leaves_the_screen_sideways(visit, name, width):
    page = visit(name, width=width)
    page.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        """() => [...document.querySelectorAll("svg.chart text")].map((t) => t.getBoundingClientRect().height)
          .filter((height) => height > 0).sort((a, b) => a - b)[0]"""
    )
    assert small > 8  # pixels of the smallest letters of a picture, whichever way they are turned


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_monitor_obeys_the_same_policy(visit, scheme):
    page = visit("monitor", width=375, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.evaluate(CONTRAST)[0][0] >= 4.5
    assert page.locator("svg.bar").count() >= 1
    assert page.locator("svg.bar rect").first.bounding_box()["width"] > 1


def test_pictures_and_images_are_there(visit):
    page = visit("images")
    assert page.evaluate("[...document.images].every((each) => each.complete && each.naturalWidth === 6)")
    assert page.locator("img").count() == 40
    assert page.locator("svg.chart").count() == 4
    for k in range(4):
        box = page.locator("svg.chart").nth(k).bounding_box()
        assert box["width"] > 250
        assert box["height"] > 150
    assert visit("names").locator("#sizes").count() == 1


def test_hostile_names_do_nothing_and_the_policy_stops_what_would(visit, chromium, paths):
    page = visit("names")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("th.name", has_text="<script>alert(1)</script>").count() == 1
    assert page.locator("main").evaluate("e => getComputedStyle(e).display") == "block"
    # Had something slipped in, the policy would hold it: neither a script nor a handler, a style or a picture from afar.
    context = chromium.new_context()
    page, told, held, came = context.new_page(), [], [], []
    page.on("console", lambda message: told.append(message.text))
    page.on("requestfailed", lambda request: held.append((request.url, request.failure)))
    page.on("response", lambda response: came.append(response.url))
    page.goto(paths["names"].as_uri())
    page.evaluate(
        """() => { const div = document.createElement("div");
          div.innerHTML = '<img src="https://example.com/x.png" onerror="window.ran = 1"><p style="color: red" onclick="window.ran = 1">x</p>';
          document.body.append(div); div.querySelector("p").click();
          const script = document.createElement("script"); script.textContent = "window.ran = 1"; document.body.append(script); }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("body > div p").evaluate("e => getComputedStyle(e).color") != "rgb(255, 0, 0)"
    assert held == [("https://example.com/x.png", "csp")]
    assert not [url for url in came if url.startswith("http")]
    assert sum("Content Security Policy" in text for text in told) >= 4
    context.close()
