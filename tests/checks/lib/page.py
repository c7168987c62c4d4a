"""What is wrong with a page that stands alone; independent of the code that writes pages."""

import collections
import re
from pathlib import Path
from xml.etree import ElementTree


def wrong(path):
    """Tags that do not match, ids that are there twice, links to nowhere, and anything that a browser would load."""
    path = Path(path)
    try:
        elements = list(ElementTree.parse(path).iter())
    except ElementTree.ParseError as error:
        return [str(error)]
    found, wanted, ids = [], set(), collections.Counter()

    def beside(file):
        return not re.match("/", file) and ".." not in file and (path.parent / file).is_file()

    def look_at(tag, name, text):
        if name == "id":
            ids[text] += 1
        elif name == "href" and text.startswith("#"):
            wanted.add(text[1:])
        elif name == "href" and (tag != "a" or not re.match("https?:", text) and not beside(text)):
            found.append(f"{tag} loads or leads to {text}")
        elif name == "aria-label" and tag == "svg" and len(text) < 60:
            found.append(f'a picture is called "{text}" only')
        elif name in ("src", "srcset", "data") and not text.startswith("data:image/svg+xml,"):
            found.append(f"{tag} loads {text}")
        elif name.startswith("on"):
            found.append(f"{tag} has a script in {name}")
        for target in re.findall(r"url\(([^)]*)\)", text):
            wanted.add(target[1:])
            if not target.startswith("#"):
                found.append(f"{tag} loads {target}")

    for element in elements:
        tag = element.tag.rpartition("}")[2]
        if tag in ("script", "iframe", "object", "embed", "link", "base"):
            found.append(f"has a {tag}")
        if tag == "style" and re.search(r"url\(|@import", element.text):
            found.append("the style loads something")
        for name, text in element.items():
            look_at(tag, name.rpartition("}")[2], text)
    found += [f"the id {name} is there {count} times" for name, count in ids.items() if count > 1]
    return found + [f"nothing has the id {name}" for name in wanted - ids.keys()]
