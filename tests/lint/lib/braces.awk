# Reads the output of bare.awk; prints file:line: of every if, for, while, else or do without a
# brace. State machine over tokens: idle -> keyword seen -> inside its parentheses -> what follows.
function flag() { print where ": " keyword " without braces" }
{
    colon = index($0, ":")
    file = substr($0, 1, colon - 1)
    rest = substr($0, colon + 1)
    number = substr(rest, 1, index(rest, ":") - 1)
    line = substr(rest, index(rest, ":") + 1)
    if (file != last_file) {
        state = ""
        last_file = file
    }
    if (line ~ /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|include|error|pragma)/) next
    # A macro may end in "while (0)"; the semicolon comes where it is used.
    if (line ~ /^[ \t]*#[ \t]*define/) state = ""
    if (in_macro && !was_continued) state = ""
    in_macro = was_continued ? in_macro : line ~ /^[ \t]*#[ \t]*define/
    was_continued = sub(/\\[ \t]*$/, "", line)
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9_.]*|[^ \t]/)) {
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (state == "paren") {
            if (token == "(") depth++
            if (token == ")" && --depth == 0) state = "after"
            continue
        }
        if (state == "keyword") {
            if (token == "(") {
                depth = 1
                state = "paren"
                continue
            }
            state = ""
        } else if (state == "after") {
            if (token != "{" && !(keyword == "while" && token == ";")) flag()
            state = ""
        } else if (state == "else") {
            if (token != "{" && token != "if") flag()
            state = ""
        }
        if (token == "if" || token == "for" || token == "while") {
            keyword = token
            where = file ":" number
            state = "keyword"
        } else if (token == "else" || token == "do") {
            keyword = token
            where = file ":" number
            state = "else"
        }
    }
}
