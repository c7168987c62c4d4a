# Prints file:line:code with comments, strings and character constants replaced by blanks.
FNR == 1 { in_comment = 0 }
{
    # The common line has none of them: fast path.
    if (!in_comment && $0 !~ /["'\/]/) {
        print FILENAME ":" FNR ":" $0
        next
    }
    out = ""
    rest = $0
    while (rest != "") {
        if (in_comment) {
            at = index(rest, "*/")
            if (at == 0) {
                rest = ""
                break
            }
            rest = substr(rest, at + 2)
            in_comment = 0
            out = out " "
            continue
        }
        if (!match(rest, /["']|\/\*|\/\//)) {
            out = out rest
            break
        }
        token = substr(rest, RSTART, RLENGTH)
        out = out substr(rest, 1, RSTART - 1)
        rest = substr(rest, RSTART + RLENGTH)
        if (token == "//") {
            break
        }
        if (token == "/*") {
            in_comment = 1
            continue
        }
        # An include keeps its file name: the lints of includes read it.
        if (out ~ /^[ \t]*#[ \t]*include/) {
            out = out token rest
            break
        }
        while (rest != "" && substr(rest, 1, 1) != token) {
            rest = substr(rest, substr(rest, 1, 1) == "\\" ? 3 : 2)
        }
        rest = substr(rest, 2)
        out = out token token
    }
    print FILENAME ":" FNR ":" out
}
