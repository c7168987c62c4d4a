# Reads the output of bare.awk; prints file:line:code of every assertion of Criterion in functions
# that a .fini names or that such a function calls.

# visit FILE NAME: the function of that name in the file, else the one with external linkage.
function visit(file, name,    key, i, called, text)
{
    key = (file, name) in first ? file SUBSEP name : external[name]
    if (key == "" || key in seen) return
    seen[key] = 1
    for (i = first[key]; i <= last[key]; i++) {
        if (code[i] ~ /(^|[^A-Za-z0-9_])cr_[a-z_]*(assert|expect|fatal|fail)[a-z_]*[ \t]*\(/) print at[i] code[i]
        text = code[i]
        while (match(text, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) {
            called = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            sub(/[ \t]*\($/, "", called)
            pending[++waiting] = called
            of[waiting] = substr(key, 1, index(key, SUBSEP) - 1)
        }
    }
}
{
    match($0, /^[^:]*:[0-9]+:/)
    where = substr($0, 1, RLENGTH)
    line = substr($0, RLENGTH + 1)
    file = substr(where, 1, index(where, ":") - 1)
    # A definition begins at the first column; its brace stands there, too.
    if (line ~ /^[A-Za-z]/ && line ~ /[A-Za-z0-9_]\(/) {
        match(line, /[A-Za-z_][A-Za-z0-9_]*\(/)
        candidate = file SUBSEP substr(line, RSTART, RLENGTH - 1)
        hidden = line ~ /^static/
    }
    if (line ~ /;[ \t]*$/) candidate = "" # a prototype
    code[NR] = line
    at[NR] = where
    if (line ~ /^[{]/ && candidate != "") {
        first[candidate] = NR
        split(candidate, part, SUBSEP)
        if (!hidden) external[part[2]] = candidate
        inside = candidate
    }
    if (line ~ /^[}]/) {
        if (inside != "") last[inside] = NR
        candidate = inside = ""
    }
    if (match(line, /\.fini[ \t]*=[ \t]*[A-Za-z_][A-Za-z0-9_]*/)) {
        name = substr(line, RSTART, RLENGTH)
        sub(/.*[= \t]/, "", name)
        pending[++waiting] = name
        of[waiting] = file
    }
}
END {
    for (next_one = 1; next_one <= waiting; next_one++) visit(of[next_one], pending[next_one])
}
