"""The check of the built site finds what a page would load from a network."""

import pytest

from tools.offline_site import loaded_from_elsewhere, main


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
