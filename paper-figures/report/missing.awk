# What a README says under "Not reproduced" or "What did not reproduce": the rest of that paragraph, and the table or
# list after it if it ends with a colon; or the whole section of that name.
{ lower = tolower($0) }
section && /^#/ { section = 0 }
lower ~ /^#+ *what did not reproduce/ { section = 1; next }
section { print; next }
!open && match(lower, /(\*\*)?(what did not reproduce|not reproduced)[^.:]*[.:](\*\*)?/) {
    open = 1
    $0 = substr($0, RSTART + RLENGTH)
    sub(/^ +/, "")
    if (/^[a-z]+[ ,;:]/) { # not the name of a model
        $0 = toupper(substr($0, 1, 1)) substr($0, 2)
    }
}
open && /^[ \t]*$/ {
    if (last !~ /:$/) {
        open = last == "" ? open : 0
    }
    if (!open) print ""
    else if (last ~ /:$/) { print ""; last = "" ; table = 1 }
    next
}
open && table && !/^[|*-]/ { open = 0; next }
open { print; last = $0 }
