# The kinds a README names in its paragraph "Kind", in its order of words; empty if it names none.
tolower($0) ~ /^(\*\*)?kind[.:]/ { reading = 1 }
reading && /^[ \t]*$/ { reading = 0; done = 1 }
reading && !done { text = text " " tolower($0) }
END {
    count = split("formula,simulated and compared,predicted,measured,simulated", kind, ",")
    for (i = 1; i <= count; i++) {
        if (match(text, kind[i])) {
            found = found (found == "" ? "" : ", ") kind[i]
            gsub(kind[i], "", text)
        }
    }
    print found
}
