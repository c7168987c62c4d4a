# Results of one ctest run from its JUnit file: a line with the numbers of tests that passed, failed and were skipped,
# then for each skipped one its name and why. Only a test that said so itself was skipped: ctest writes "skipped" for a
# missing program too, and that is a failure here.
/<testcase / {
    all++
    name = attribute("name")
    if (attribute("status") == "run") passed++
    if (attribute("status") == "disabled") skip("disabled")
    open = 0
}
/<skipped message="SKIP_/ {
    open = 1
    said = ""
}
# The last line that says so, or else the last line.
open && (/<system-out>/ || /^[^<\t]/) {
    sub(/^.*<system-out>/, "")
    sub(/<\/system-out>.*/, "")
    if (/[^ ]/ && (said !~ /^skipped: / || /^skipped: /)) said = $0
}
open && /<\/testcase>/ {
    sub(/^skipped: /, "", said)
    skip(said == "" ? "it does not say why" : said)
    open = 0
}
END {
    print passed + 0, all - passed - skipped, skipped + 0
    printf "%s", lines
}
function attribute(key)
{
    return match($0, " " key "=\"[^\"]*\"") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4) : ""
}
function skip(reason)
{
    gsub(/&lt;/, "<", reason)
    gsub(/&gt;/, ">", reason)
    gsub(/&quot;/, "\"", reason)
    gsub(/&amp;/, "\\&", reason)
    lines = lines name ": " reason "\n"
    skipped++
}
