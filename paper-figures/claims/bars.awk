# What the picture draws, panel,place,model,published,ours: rows of claims.csv (OUTDIR) with a number of
# both, then the bounds (published/claims.csv) in the column published. awk -f text.awk -f bars.awk.
FNR == 1 { file++; next }
{ n = cells($0) }
file == 1 && cell[1] ~ /^(speedup|scaling|longer)$/ || cell[1] == "bubbles" && cell[3] ~ /^on a server/ {
    print cell[1] "," ++place[cell[1]] "," cell[2] "," cell[5] "," cell[6]
}
file == 2 && cell[1] ~ /^(speedup|scaling|longer|bubbles)$/ { print cell[1] ",0,bound," cell[3] "," }
