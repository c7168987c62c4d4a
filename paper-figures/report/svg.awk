# An SVG file as a part of a page: ID=PREFIX TEXT=ALTERNATIVE awk -f text.awk -f svg.awk FILE FILE.
# The file is read twice. Pictures by the same program share their ids, and one picture may define
# an id again for its next part: ids that nothing refers to are dropped, the others get the prefix
# and a number, and a reference means the last definition before it.
# Replaces what `pattern` finds: an id with `before` and `after` around it. `defines`: id attributes.
function rename(line, pattern, before, after, defines,    done, found, id)
{
    done = ""
    while (match(line, pattern)) {
        found = substr(line, RSTART, RLENGTH)
        done = done substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        id = found
        sub(/^[^#'"]*['"#(]+/, "", id)
        sub(/['")]+$/, "", id)
        if (defines && !(id in referred)) {
            continue
        }
        if (defines) {
            defined[id]++
        }
        done = done before name "-" id "-" (id in defined ? defined[id] : 1) after
    }
    return done line
}

BEGIN {
    name = ENVIRON["ID"]
    text = escaped(ENVIRON["TEXT"])
    gsub(/"/, "\\&quot;", text)
}
# First reading: what is referred to.
NR == FNR {
    line = $0
    while (match(line, /(href=['"]#[^'"]+['"]|url\(['"]?#[^)'"]+)/)) {
        id = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        sub(/^[^#]*#/, "", id)
        sub(/['"]$/, "", id)
        referred[id]
    }
    next
}

# Prolog: up to the root element, whose tag may have several lines.
!inside {
    head = head (head == "" ? "" : " ") $0
    if (!match(head, /<svg[^>]*>/)) {
        next
    }
    tag = substr(head, RSTART, RLENGTH)
    rest = substr(head, RSTART + RLENGTH)
    inside = 1
    box = ""
    if (match(tag, /viewBox=["'][^"']*["']/)) {
        box = substr(tag, RSTART + 9, RLENGTH - 10)
    } else {
        width = height = tag
        sub(/.* width=["']/, "", width)
        sub(/.* height=["']/, "", height)
        box = "0 0 " (width + 0) " " (height + 0)
    }
    split(box, size, /[ ,]+/)
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" " \
        "viewBox=\"%s\" style=\"--natural:%dpx\" role=\"img\" aria-label=\"%s\">\n", box, size[3], text
    $0 = rest
}
{
    gsub(/<title>(Gnuplot|gnuplot_plot_[0-9a-z_]*)<\/title>/, "")
    gsub(/<desc>[^<]*<\/desc>/, "")
    line = rename($0, "[ \t]id=(\"[^\"]*\"|'[^']*')", " id=\"", "\"", 1)
    line = rename(line, "href=(\"#[^\"]*\"|'#[^']*')", "href=\"#", "\"", 0)
    line = rename(line, "url\\([\"']?#[^)]*\\)", "url(#", ")", 0)
    sub(/^[ \t]+/, "", line)
    if (line != "") {
        print line
    }
}
