# The kinds a README names *so* in its paragraph "Kind", in the order of their definition; empty if it
# names none. Other words there are no kinds: "nothing here has been measured".
tolower($0) ~ /^(\*\*)?kind[.:]/ { reading = 1 }
reading && /^[ \t]*$/ { reading = 0; done = 1 }
reading && !done { line = line " " tolower($0) }
END {
    gsub(/\*\*[^*]*\*\*/, "", line) # the heading is bold
    while (match(line, /\*[^*]+\*/)) {
        text = text " " substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
    }
    count = split("formula,simulated and compared,predicted,measured,simulated", kind, ",")
    for (i = 1; i <= count; i++) {
        if (match(text, kind[i])) {
            found = found (found == "" ? "" : ", ") kind[i]
            gsub(kind[i], "", text)
        }
    }
    print found
}
