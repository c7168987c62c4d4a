# One part of an entry's README: awk -v part=PART -f readme.awk README.md. PART: kind, question,
# picture (what the picture shows), finding (what the entry says, what did not reproduce), or method,
# which is everything else. A paragraph belongs to a part by its first words; a finding goes on until
# a paragraph with a label of its own, the list of a picture's paragraph until its end.
function part_of(line)
{
    line = tolower(line)
    gsub(/\*/, "", line)
    if (line ~ /^kind[.:]/) return "kind"
    if (line ~ /^question[.:]/) return "question"
    if (line ~ /^(what the pictures? shows?|pictures?)[.:]/) return "picture"
    if (line ~ /^(what it says|what it shows|result|what did not reproduce|not reproduced)[^.:]*[.:]/) return "finding"
    if (line ~ /^(published numbers|published data|method|experiment|files|checks|limits|cells that|means are|uncertain)/)
        return "method"
    return ""
}
FNR == 1 && /^# / { next }
/^[ \t]*$/ { blank = 1; if (now == part) print ""; next }
blank || FNR <= 2 {
    blank = 0
    found = part_of($0)
    if (found == "" && /^(\*\*|#)/) {
        found = "method"
    }
    if (found != "") now = found
    else if (now != "finding" && !(now == "picture" && /^[-|]/)) now = "method"
}
now == part { print }
