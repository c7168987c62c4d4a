# Writes expected.csv: times of the golden traces' PP: ranges, by Python's own JSON reader and statistics. Usage: python
# summarise.py > expected.csv
import glob
import json
import os
import re
import statistics

print("trace,stage,type,pair_stage,count,median_us,min_us,mean_us,stddev_us")
folder = os.path.dirname(os.path.abspath(__file__))
for case in sorted({os.path.basename(f).split(".")[0] for f in glob.glob(folder + "/*.json")}):
    times = {}
    for path in sorted(glob.glob(f"{folder}/{case}.*.json")):
        with open(path) as file:
            for event in json.load(file)["traceEvents"]:
                name = event.get("name", "")
                one = re.fullmatch(r"PP:(\d+)([FIWB])\d+", name)
                two = re.fullmatch(r"PP:\((\d+)F\d+;(\d+)B\d+\)OVERLAP_F_B", name)
                if event.get("ph") != "X" or not (one or two):
                    continue
                key = (int(one[1]), one[2], "") if one else (int(two[1]), "F", int(two[2]))
                times.setdefault(key, []).append(event["dur"])
    for (stage, kind, pair), us in sorted(times.items(), key=str):
        print(f"{case},{stage},{kind},{pair},{len(us)},{statistics.median(us):.6f},{min(us):.6f},"
              f"{statistics.fmean(us):.6f},{statistics.pstdev(us):.6f}")
