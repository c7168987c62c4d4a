# Reading the pipeline study; used with awk -f tables.awk -f study.awk -f SCRIPT.

# Reads a table with the columns schedule and model, as published or as rpsim prints it:
# table[schedule, model, column], rows[1..n] = schedule SUBSEP model in the file's order, columns[1..]
# in the header's. Returns n. Quoted cells (a partition's sizes) are dropped, never read.
function read_study(path, table, rows, columns,    line, cell, count, width, i, status)
{
    count = -1
    while ((status = (getline line < path)) > 0) {
        gsub(/"[^"]*"/, "", line)
        i = split(line, cell, ",")
        if (++count == 0) {
            width = split(line, columns, ",")
            if (columns[1] != "schedule" || columns[2] != "model") {
                stop(path ": the first columns are not schedule and model")
            }
            continue
        }
        if (i != width) {
            stop(path ": " line ": " i " cells, the header has " width)
        }
        rows[count] = cell[1] SUBSEP cell[2]
        for (i = 1; i <= width; i++) {
            table[rows[count], columns[i]] = cell[i]
        }
    }
    if (status < 0 || count < 1) {
        stop(path ": cannot be read or has no rows")
    }
    close(path)
    return count
}

# A cell of read_study as a number; a bubble may have no switch at all, so 0 is one.
function value(table, row, column)
{
    if (!((row, column) in table) || table[row, column] !~ /^[0-9]+(\.[0-9]+)?$/) {
        gsub(SUBSEP, " on ", row)
        stop("no number for " row ", " column)
    }
    return table[row, column] + 0
}

# Part of the GPUs' time in percent; what is a duration column of one run.
function share(table, row, what)
{
    return 100 * value(table, row, what) / (value(table, row, "gpus") * value(table, row, "makespan_ms"))
}

# The rows of read_study model by model, models in the order of their first rows: sorted[1..count].
function by_model(rows, count, sorted,    done, i, j, n, name, other)
{
    for (i = 1; i <= count; i++) {
        split(rows[i], name, SUBSEP)
        for (j = i; j <= count && !(name[2] in done); j++) {
            split(rows[j], other, SUBSEP)
            if (other[2] == name[2]) {
                sorted[++n] = rows[j]
            }
        }
        done[name[2]] = 1
    }
}
