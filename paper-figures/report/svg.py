"""An SVG file as a part of a page."""

import re
from html import escape

REFERENCES = re.compile(r"""href=['"]#([^'"]+)['"]|url\(['"]?#([^)'"]+)['"]?\)""")
IDS = re.compile(r"""(?P<define>[ \t]id=)(?:"([^"]*)"|'([^']*)')|""" + REFERENCES.pattern)


def part(path, name, text):
    """The file with a text for a reader who cannot see it.

    Pictures by the same program share their ids, and one picture may define an id again for its next part: ids that
    nothing refers to are dropped, the others get the name and a number, and a reference means the last definition
    before it.
    """
    whole = path.read_text()
    root = re.search("<svg[^>]*>", whole)
    box = re.search(r"""viewBox=["']([^"']*)["']""", root[0])
    sizes = [re.search(rf""" {side}=["']([0-9.]+)""", root[0]) for side in ("width", "height")]
    box = box[1] if box else "0 0 {:g} {:g}".format(*(float(size[1]) for size in sizes))
    referred = {each for both in REFERENCES.findall(whole) for each in both}
    defined = {}

    def rename(found):
        define, *names = found.groups()
        old = next(each for each in names if each is not None)
        if define:
            if old not in referred:
                return ""
            defined[old] = defined.get(old, 0) + 1
        new = f"{name}-{old}-{defined.get(old, 1)}"
        return f'{define}"{new}"' if define else f'href="#{new}"' if found[0][0] == "h" else f"url(#{new})"

    body = re.sub(r"<title>(Gnuplot|gnuplot_plot_[0-9a-z_]*)</title>|<desc>[^<]*</desc>", "", whole[root.end():])
    lines = (line.lstrip(" \t") for line in IDS.sub(rename, body).splitlines())
    width = int(float(re.split("[ ,]+", box)[2]))
    return ('<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="{box}" style="--natural:{width}px" role="img" aria-label="{escape(text)}">\n'
            + "".join(line + "\n" for line in lines if line))
