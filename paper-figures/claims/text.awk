# What both scripts need.

function escaped(s)
{
    gsub(/&/, "\\&amp;", s)
    gsub(/</, "\\&lt;", s)
    gsub(/>/, "\\&gt;", s)
    return s
}

# Cells of a line into cell[1..n].
function cells(line,    n, part)
{
    split("", cell)
    n = 0
    while (1) {
        if (match(line, /^"([^"]|"")*"/)) {
            part = substr(line, 2, RLENGTH - 2)
            gsub(/""/, "\"", part)
        } else {
            match(line, /^[^,]*/)
            part = substr(line, 1, RLENGTH)
        }
        line = substr(line, RLENGTH + 1)
        cell[++n] = part
        if (line == "") {
            return n
        }
        line = substr(line, 2)
        if (line == "") {
            cell[++n] = ""
            return n
        }
    }
}
