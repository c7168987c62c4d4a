# For awk -F, over the CSV of `runs` (sweep.sh): f["column"] is the column's place. Quotes go.
FNR == 1 {
    gsub(/\r/, "")
    for (i = 1; i <= NF; i++) {
        f[$i] = i
    }
    next
}
{
    gsub(/"|\r/, "")
}
