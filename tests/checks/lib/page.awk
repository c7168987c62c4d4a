# What is wrong with a page, a line each: tags that do not match, ids that are there twice, links to
# nowhere, and anything that a browser would load. Independent of the report's own code.
# beside FILE: whether it lies in the page's folder.
function beside(file,    path, line, found)
{
    if (file ~ /^\/|\.\./) return 0
    path = FILENAME
    sub(/[^\/]*$/, file, path)
    found = (getline line < path) >= 0
    close(path)
    return found
}
function attributes(tag,    name, text)
{
    while (match(tag, /[a-zA-Z:-]+=("[^"]*"|'[^']*')/)) {
        name = substr(tag, RSTART, RLENGTH)
        tag = substr(tag, RSTART + RLENGTH)
        text = name
        sub(/=.*/, "", name)
        sub(/^[^=]*=./, "", text)
        text = substr(text, 1, length(text) - 1)
        if (name == "id" && ids[text]++) print "the id " text " is there " ids[text] " times"
        if (name ~ /href$/ && text ~ /^#/) wanted[substr(text, 2)]
        if (name ~ /href$/ && text !~ /^#/ && (element != "a" || (text !~ /^https?:/ && !beside(text)))) print "loads or leads to " text
        if (name == "aria-label" && element == "svg" && length(text) < 60) print "a picture is called \"" text "\" only"
        if ((name == "src" || name == "srcset" || name == "data") && text !~ /^data:image\/svg\+xml,/) print element " loads " text
        if (name ~ /^on/) print element " has a script in " name
        while (match(text, /url\([^)]*\)/)) {
            if (substr(text, RSTART + 4, 1) != "#") print element " loads " substr(text, RSTART, RLENGTH)
            else wanted[substr(text, RSTART + 5, RLENGTH - 6)]
            text = substr(text, RSTART + RLENGTH)
        }
    }
}
# A record is what stands between one < and the next: a tag and the text after it.
BEGIN { RS = "<" }
NR == 1 || /^!DOCTYPE/ { next }
!/^\/?[a-zA-Z][a-zA-Z0-9:]*[ \t\n>\/]/ || !/>/ {
    print "not a tag: <" substr($0, 1, 40)
    next
}
{
    tag = $0
    sub(/>.*/, "", tag)
    element = tag
    sub(/^\//, "", element)
    sub(/[ \t\n\/].*/, "", element)
}
/^\// {
    if (stack[depth] != element) print "</" element "> closes " stack[depth]
    if (depth > 0) depth--
    next
}
{
    if (element ~ /^(script|iframe|object|embed|link|base)$/) print "has a " element
    if (element == "style" && /(url\(|@import)/) print "the style loads something"
    attributes(tag)
    if (tag !~ /\/$/) stack[++depth] = element
}
END {
    if (depth) print "not closed: " stack[depth]
    for (id in wanted) if (!(id in ids)) print "nothing has the id " id
}
