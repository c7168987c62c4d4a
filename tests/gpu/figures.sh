# suite.sh's measurements beside the values that experiments/expected.csv has for this kind of device.
# shellcheck shell=bash disable=SC2154 # set by suite.sh

# expected.csv: device,figure,unit,low,high,table,row,column. A row begins with the fields of `row`, separated by "|";
# column 0 of summary.csv is the number at the beginning of a verdict.
compare_figures() {
    local expected=$here/expected.csv gpus=1
    [ -e "$expected" ] || expected=$here/../../experiments/expected.csv
    [ "$device" = yes ] && [ -e "$expected" ] || return 0
    [ "$real" = 0 ] || gpus=$real
    awk -F, -v out="$out" -v device="$(head -n 1 <<<"$device_list")" -v gpus="$gpus" '
        function measured(table, row, column,    line, n, field, found, value) {
            gsub(/\|/, ",", row)
            found = ""
            while ((getline line < (out "/" table)) > 0) {
                if (index(line, row ",") != 1) { continue }
                n = split(line, field, ",")
                value = column == 0 ? field[5] : column <= n ? field[column] : ""
                gsub(/"/, "", value)
                if (value ~ /^-?[0-9]/) { found = value + 0 }
            }
            close(out "/" table)
            return found
        }
        BEGIN { print "device,figure,unit,measured,expected_low,expected_high,verdict" }
        NR > 1 {
            split($1, kind, " x ")
            if (index(device, kind[1]) == 0 || (kind[2] != "" && kind[2] != gpus)) { next }
            value = measured($6, $7, $8)
            if (value == "") { next }
            print $1 "," $2 "," $3 "," value "," $4 "," $5 "," (value < $4 ? "below" : value > $5 ? "above" : "as expected")
        }' "$expected" | table compared.csv
}
