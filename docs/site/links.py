#!/usr/bin/env python3
"""links.py SITE: dead links of a built site, and everything that a page would load from a network. Exit status 1: some.

A link is dead if its file is missing, or its anchor in that file. Links to other hosts are not followed, but a page
must not load anything from them.
"""
import html.parser
import pathlib
import sys
import urllib.parse

LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(html.parser.HTMLParser):
    """Anchors and links of a page: (line, tag, attribute, target)."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(value for key, value in attrs.items() if key == "id" or (tag == "a" and key == "name"))
        for attribute in ("href", "src"):
            if attrs.get(attribute):
                self.links.append((self.getpos()[0], tag, attribute, attrs[attribute]))


def main(site):
    site = pathlib.Path(site).resolve()
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong = count = 0
    for path, page in pages.items():
        for line, tag, attribute, target in page.links:
            count += 1
            address = urllib.parse.urlsplit(target)
            reason = None
            if address.scheme or address.netloc:
                if (tag, attribute) in LOADED and address.scheme != "data":
                    reason = "is loaded from a network"
            else:
                # The page for unknown addresses stands anywhere: its links begin at the root.
                start = site if address.path.startswith("/") else path.parent
                file = (start / urllib.parse.unquote(address.path).lstrip("/")).resolve() if address.path else path
                file = file / "index.html" if file.is_dir() else file
                anchor = urllib.parse.unquote(address.fragment)
                if not file.is_file() or not file.is_relative_to(site):
                    reason = "there is no such file"
                elif anchor and file in pages and anchor not in pages[file].anchors:
                    reason = "there is no such anchor"
            if reason:
                print(f"{path.relative_to(site)}:{line}: {target}: {reason}")
                wrong += 1
    print(f"{len(pages)} pages, {count} links, {wrong} of them wrong")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
