"""The check of the built site finds what a page would load from a network; search needs none."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, FLAGS
from tools.offline_site import loaded_from_elsewhere, main

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "docs" / "assets" / "iframe-worker.js"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("index.html", '<script src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ("a/b.html", '<link rel="stylesheet" href="//fonts.example/css">', "//fonts.example/css"),
        ("s.css", "@import 'https://x.example/y.css';", "https://x.example/y.css"),
        ("s.css", "a { background: url(https://x.example/i.png) }", "https://x.example/i.png"),
    ],
)  # fmt: skip
def test_what_is_loaded_from_elsewhere_is_found(tmp_path, name, text, found):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "index.html").write_text("")
    (tmp_path / name).write_text(text)
    assert list(loaded_from_elsewhere(tmp_path)) == [(name, found)]
    assert main([str(tmp_path)]) == 1


def test_links_to_follow_and_files_of_the_site_are_good(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="https://pytorch.org">torch</a> <img src="plot.svg"><script src="a.js"></script>'
    )
    assert main([str(tmp_path)]) == 0


def test_a_folder_without_a_site_is_an_error(tmp_path):
    assert main([str(tmp_path)]) == 2


def test_the_site_searches_with_a_script_of_its_own():
    settings = (ROOT / "mkdocs.yml").read_text()
    (scripts,) = re.findall(r"polyfills: \[(.*)\]", settings)
    assert "\n  - offline" in settings and (ROOT / "docs" / scripts) == WORKER


PAGE = """<body><p id="said">nothing</p><script src="iframe-worker.js"></script><script>
const worker = new Worker("double.js");
worker.addEventListener("message", (event) => {
  document.getElementById("said").textContent = `doubled: ${event.data}`;
  worker.terminate();
});
worker.postMessage(21);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_a_page_that_is_opened_as_a_file_has_workers(tmp_path):
    (tmp_path / "page.html").write_text(PAGE)
    (tmp_path / "double.js").write_text(
        'addEventListener("message", (event) => postMessage(2 * event.data));'
    )
    shutil.copy(WORKER, tmp_path)
    waiting = "--virtual-time-budget=10000"  # of the page's clock, which runs as fast as it can
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [str(CHROMIUM), *FLAGS, profile, waiting, "--dump-dom"]
    page = (tmp_path / "page.html").as_uri()
    done = subprocess.run([*command, page], capture_output=True, text=True, timeout=120)
    assert "doubled: 42" in done.stdout and "<iframe" not in done.stdout
