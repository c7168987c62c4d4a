# Tables by name for claims.awk: awk -f tables.awk -f text.awk -f data.awk -f claims.awk ID=FILE...

# Reads every ID=FILE of the command line: data[ID, row, column], rows[ID] = 1..., and clears the
# command line, so that awk reads nothing itself.
function read_all(    i, at, id)
{
    for (i = 1; i < ARGC; i++) {
        at = index(ARGV[i], "=")
        id = substr(ARGV[i], 1, at - 1)
        read_file(id, substr(ARGV[i], at + 1))
        delete ARGV[i]
    }
}

function read_file(id, path,    line, n, i, head, status)
{
    rows[id] = -1
    while ((status = (getline line < path)) > 0) {
        sub(/\r$/, "", line)
        n = cells(line)
        rows[id]++
        for (i = 1; i <= n; i++) {
            if (rows[id] == 0) {
                head[i] = cell[i]
            } else {
                data[id, rows[id], head[i]] = cell[i]
            }
        }
    }
    if (status < 0 || rows[id] < 1) {
        stop(path ": cannot be read or has no rows")
    }
    close(path)
}

# What stands in `column` of the first row of table `id` in which column a is x (and b is y); empty
# if there is no such row, or no such table.
function look(id, column, a, x, b, y,    i)
{
    for (i = 1; i <= rows[id]; i++) {
        if (data[id, i, a] == x && (b == "" || data[id, i, b] == y)) {
            return data[id, i, column]
        }
    }
    return ""
}

# The value of a claim's quantity.
function claimed(claim, quantity,    found)
{
    found = look("claims", "value", "claim", claim, "quantity", quantity)
    if (found !~ /^[0-9.]+$/) {
        stop("claims.csv has no number for " claim ", " quantity)
    }
    return found + 0
}

function is_number(x)
{
    return x ~ /^-?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?$/
}

# The most tokens/s of a system other than RoundPipe on this model; best_system is which. A system of
# the table "throughput" counts where its throughput is published: what ran out of memory is none.
function best_baseline(id, system_column, column, model,    i, found)
{
    found = 0
    best_system = ""
    for (i = 1; i <= rows[id]; i++) {
        if (data[id, i, "model"] == model && data[id, i, system_column] !~ /^roundpipe/ && \
            is_number(data[id, i, column]) && data[id, i, column] + 0 > found && \
            (id != "throughput" || is_number(data[id, i, "published"]))) {
            found = data[id, i, column] + 0
            best_system = data[id, i, system_column]
        }
    }
    return found > 0 ? found : ""
}

# The largest of a list "1,2,3".
function largest(list,    n, part, i, found)
{
    n = split(list, part, ",")
    found = part[1] + 0
    for (i = 2; i <= n; i++) {
        if (part[i] + 0 > found) {
            found = part[i] + 0
        }
    }
    return found
}
