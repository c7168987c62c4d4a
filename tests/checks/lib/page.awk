# What is wrong with a page, a line each: tags that do not match, ids that are there twice, links to
# nowhere, and anything that a browser would load. Independent of the report's own code.
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
        if (name ~ /href$/ && text !~ /^#/ && (element != "a" || text !~ /^https?:/)) print "loads or leads to " text
        if (name == "src" || name == "srcset" || name == "data") print element " loads " text
        if (name ~ /^on/) print element " has a script in " name
        while (match(text, /url\([^)]*\)/)) {
            if (substr(text, RSTART + 4, 1) != "#") print element " loads " substr(text, RSTART, RLENGTH)
            else wanted[substr(text, RSTART + 5, RLENGTH - 6)]
            text = substr(text, RSTART + RLENGTH)
        }
    }
}
{ page = page $0 "\n" }
END {
    count = split(page, part, "<")
    for (i = 2; i <= count; i++) {
        element = part[i]
        if (element ~ /^!DOCTYPE/) continue
        if (element !~ /^\/?[a-zA-Z][a-zA-Z0-9:]*[ \t\n>\/]/ || element !~ />/) {
            print "not a tag: <" substr(element, 1, 40)
            continue
        }
        tag = element
        sub(/>.*/, "", tag)
        sub(/[ \t\n>\/].*/, "", element)
        if (part[i] ~ /^\//) {
            element = part[i]
            sub(/^\//, "", element)
            sub(/[ \t\n>].*/, "", element)
            if (stack[depth] != element) print "</" element "> closes " stack[depth]
            if (depth > 0) depth--
            continue
        }
        if (element ~ /^(script|iframe|object|embed|link|base)$/) print "has a " element
        if (element == "style" && part[i] ~ /(url\(|@import)/) print "the style loads something"
        if (element == "svg") pictures++
        attributes(tag)
        if (tag !~ /\/$/) stack[++depth] = element
    }
    if (depth) print "not closed: " stack[depth]
    for (id in wanted) if (!(id in ids)) print "nothing has the id " id
}
