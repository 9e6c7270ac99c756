"""The built site in a browser: wide and on a phone, light and dark, without a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser, browser
from tools import landing_plot

ROOT = Path(__file__).parents[2]
WIDTHS = (1440, 390)
needs_site = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("material") is None,
    reason="no chromium (apt-get install chromium), or no mkdocs (make docs)",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built for these tests."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def open_page(page: Browser, path: Path, width: int, dark: bool) -> None:
    """Open a page as somebody who has chosen no colours."""
    page.look(width, dark)
    page.open(path.as_uri())
    page.run("localStorage.clear()")
    page.open(path.as_uri())
    scheme = "slate" if dark else "default"
    page.wait(f"(document.body.dataset.mdColorScheme ?? '{scheme}') == '{scheme}'")


CONTRAST = """
(() => {
  const light = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return {value: (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255, a};
  };
  const paper = light(getComputedStyle(document.body).backgroundColor).value;
  const texts = [...document.querySelectorAll(".km-svg text")];
  return texts.map((each) => {
    const ink = light(getComputedStyle(each).fill);
    return Math.abs(ink.value - paper) * ink.a;
  });
})()
"""


@needs_site
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_landing_page(site: Path, page: Browser, width: int, dark: bool) -> None:
    open_page(page, site / "index.html", width, dark)
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.run("document.querySelectorAll('.km-figure svg').length") == 1
    assert page.run("document.querySelectorAll('.km-plots svg').length") == 2
    contrasts = page.run(CONTRAST)
    assert len(contrasts) > 40 and min(contrasts) > 0.3, "texts of figure and plots are readable"
    tabs = "[...document.querySelectorAll('.md-tabs__link')].filter((a) => a.offsetParent)"
    assert page.run(f"{tabs}.length") == (5 if width == 1440 else 0)
    shown = "[...document.querySelectorAll('.tabbed-block')].map((b) => b.offsetHeight > 0)"
    assert page.run(shown) == [True, False, False]
    page.run("document.querySelectorAll('.tabbed-labels label')[2].click()")
    assert page.run(shown) == [False, False, True]
    assert page.run("document.querySelector('.md-footer__link--next').href").endswith(
        "install.html"
    )
    page.wait("document.querySelector('.km-report').contentDocument?.querySelector('#kernels')")


@needs_site
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways(site: Path, page: Browser, width: int) -> None:
    page.look(width, False)
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    names = [name.replace(".md", ".html") for name in re.findall(r": (\S+\.md)\n", menu)]
    found = {}
    for name in [*names, "assets/report.html"]:
        page.open((site / name).as_uri())
        found[name] = page.run("document.documentElement.scrollWidth - innerWidth")
    assert len(found) > 40
    assert {name: over for name, over in found.items() if over > 0} == {}


@needs_site
def test_pages_lead_to_the_previous_and_the_next(site: Path, page: Browser) -> None:
    page.look(1440, False)
    page.open((site / "install.html").as_uri())
    links = page.run("[...document.querySelectorAll('.md-footer__link')].map((a) => a.href)")
    assert [link.rpartition("/")[2] for link in links] == ["index.html", "comparison.html"]


@needs_site
def test_search_works_without_a_network(site: Path, page: Browser) -> None:
    page.look(1440, False)
    page.ask("Network.enable")
    page.ask(
        "Network.emulateNetworkConditions",
        offline=True, latency=0, downloadThroughput=0, uploadThroughput=0,
    )  # fmt: skip
    page.open((site / "index.html").as_uri())
    page.run("document.querySelector('[data-md-toggle=search]').click()")
    page.run(
        "(() => { const field = document.querySelector('.md-search__input'); field.focus();"
        " field.value = 'fleet'; field.dispatchEvent(new KeyboardEvent('keyup', {key: 't'})); })()"
    )
    page.wait("[...document.querySelectorAll('.md-search-result__link')].some("
              "(a) => a.href.includes('fleet.html'))")  # fmt: skip


def test_the_plot_has_the_figures_of_the_table() -> None:
    assert landing_plot.PLOT.read_text() == landing_plot.plot(), "python -m tools.landing_plot"
    table = (ROOT / "docs" / "performance.md").read_text()
    for section in table.split("\n## AMD ")[1:3]:
        name, _, text = section.partition("\n")
        panel = landing_plot.plot().partition(f">AMD {name}<")[2].partition("</figure>")[0]
        assert re.search(r"on (\d{4}-\d\d-\d\d)", text)[1] in panel
        for title in (
            "BERT-base 1 x 128",
            "ResNet-50, batch 1",
            "MiniLM-L6, real sentences, 1 x 32",
        ):
            row = re.search(
                rf"^\| {re.escape(title)} \| ([^|]*) \| [^|]* \| ([^|]*) \| \**([\d.]+)", text, re.M
            )
            ours, which, times = row[1], row[2], row[3]
            assert f">{ours}<" in panel and f">{float(times):.2f}<" in panel, (title, which)


def test_the_example_report_is_of_todays_pages() -> None:
    shown = (ROOT / "docs" / "assets" / "report.html").read_text()
    templates = ROOT / "src" / "kernelmill" / "report" / "templates"
    for name in ("style.css", "script.js"):
        assert (templates / name).read_text().strip() in shown, (
            "kernelmill explain examples/blocks.py:make"
        )
    assert "Kernels by total time" in shown and "IR and assembly" in shown
