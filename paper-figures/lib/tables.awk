# Reading data files; used with awk -f tables.awk -f SCRIPT. Whatever is missing ends the program.

function stop(message)
{
    print "paper-figures: " message > "/dev/stderr"
    exit 1
}

# Reads a CSV file without quotes: table[key, column] with the first column as key and the names of
# the header as columns; keys[1..n] in the file's order. Returns n.
function read_table(path, table, keys,    line, cell, name, columns, count, i, status)
{
    count = -1
    while ((status = (getline line < path)) > 0) {
        if (line == "") {
            continue
        }
        i = split(line, cell, ",")
        if (++count == 0) {
            columns = split(line, name, ",")
            continue
        }
        if (i != columns) {
            stop(path ": " line ": " i " cells, the header has " columns)
        }
        keys[count] = cell[1]
        for (i = 1; i <= columns; i++) {
            table[cell[1], name[i]] = cell[i]
        }
    }
    if (status < 0 || count < 1) {
        stop(path ": cannot be read or has no rows")
    }
    close(path)
    return count
}

# The cell as a positive number.
function number(table, key, column)
{
    if (!((key, column) in table) || table[key, column] !~ /^[0-9]+(\.[0-9]+)?$/ || table[key, column] + 0 <= 0) {
        stop("no positive number for " key ", " column)
    }
    return table[key, column] + 0
}

# The number of a line "key: number" in a platform file, or in the file of its GPU (gpus/NAME.yaml).
function platform_number(path, key,    line, part, found, gpu, status)
{
    while ((status = (getline line < path)) > 0) {
        split(line, part, /[: ]+/)
        if (part[1] == key) {
            found = part[2]
        }
        if (part[1] == "gpu") {
            gpu = part[2]
        }
    }
    close(path)
    if (status == 0 && found == "" && gpu != "") {
        sub(/platforms\/[^\/]*$/, "gpus/" gpu ".yaml", path)
        return platform_number(path, key)
    }
    if (status < 0 || found !~ /^[0-9]+(\.[0-9]+)?$/ || found + 0 <= 0) {
        stop(path ": no positive number " key)
    }
    return found + 0
}
