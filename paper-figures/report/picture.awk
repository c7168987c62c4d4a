# What a picture shows, as plain text in one line: awk -v suffix=SUFFIX -f picture.awk PARAGRAPH.
# PARAGRAPH is the README's part `picture`. Where an entry has several pictures, an item of a list
# that begins with a picture's suffix in backquotes belongs to that picture alone.
function add(text, line)
{
    sub(/^[ \t]+/, "", line)
    return text (text == "" ? "" : " ") line
}
/^[ \t]*$/ { inside = 0; next }
match($0, /^- `[^`]*`[.:]? */) {
    inside = 1
    item = substr($0, 4, index(substr($0, 4), "`") - 1)
    of[item] = substr($0, RLENGTH + 1)
    next
}
inside { of[item] = add(of[item], $0); next }
{ all = add(all, $0) }
END {
    sub(/^(\*\*)?([Ww]hat the pictures? shows?|[Pp]ictures?)[.:](\*\*)? */, "", all)
    text = suffix in of ? add(all, of[suffix]) : all
    gsub(/[*`]/, "", text)
    while (match(text, /\[[^]]*\]\([^)]*\)/)) {
        link = substr(text, RSTART + 1, RLENGTH - 1)
        sub(/\].*/, "", link)
        text = substr(text, 1, RSTART - 1) link substr(text, RSTART + RLENGTH)
    }
    print toupper(substr(text, 1, 1)) substr(text, 2)
}
