"""Chakra traces as ASTRA-sim's workload layer plays them. Python's standard library alone; shares nothing with rpsim.

    chakra_feeder.py PREFIX [N]

Prints the makespan in ps, which is the longest path over rp_ns and rp_ps, and the number of CPU nodes. Then plays the
trace N times (1), first with its own times, then with random times. If nodes are left over it names those that wait and
their reasons, and the exit status is 1.

Rules of a play, after the source of ASTRA-sim 2 (astra-sim/workload/Workload.cc, HardwareResource.cc, and the feeder of
Chakra, et_feeder.cpp). A node can be issued when all its parents have ended; the lowest id goes first. A rank runs a
CPU node, a computation on the GPU and a node of communication or memory at a time; a node waits for its place if that
is taken. A RECV takes no place and ends when its SEND has. A SEND ends by itself. A collective is the k-th that its
rank issues in its group (pg_name, otherwise all ranks); it holds its place from then on, and ends for all when the last
rank has issued its k-th.
"""
import glob
import heapq
import json
import os
import random
import sys

METADATA, LOAD, STORE, COMP, SEND, RECV, COLL = range(1, 8)


# ---- reading ---------------------------------------------------------------------------------------------------------


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        elif key & 7 in (1, 5):
            size = 8 if key & 7 == 1 else 4
            value, at = int.from_bytes(data[at:at + size], "little"), at + size
        else:
            sys.exit(f"wire type {key & 7}")
        yield key >> 3, value
    assert at == len(data)


class Node:
    def __init__(self, rank, message):
        self.rank, self.id, self.name, self.type, self.us = rank, 0, "", 0, 0
        self.parents, self.attributes = [], {}
        for number, value in fields(message):
            if number == 1:
                self.id = value
            elif number == 2:
                self.name = value.decode()
            elif number == 3:
                self.type = value
            elif number in (4, 5):
                values, at = ([value], 0) if isinstance(value, int) else ([], 0)
                while not isinstance(value, int) and at < len(value):
                    parent, at = varint(value, at)
                    values.append(parent)
                self.parents += values
            elif number == 7:
                self.us = value
            elif number == 10:
                parts = dict(fields(value))
                name = parts.pop(1).decode()
                self.attributes[name] = next(iter(parts.values()))
        self.ps = self.attributes.get("rp_ns", self.us * 1000) * 1000 + self.attributes.get("rp_ps", 0)
        self.key = tuple(self.attributes.get(k) for k in ("comm_src", "comm_dst", "comm_tag"))
        self.place = {COMP: "cpu" if self.attributes.get("is_cpu_op") else "gpu"}.get(self.type, "communication")
        self.group = self.attributes.get("pg_name", b"").decode()


def load(prefix):
    nodes = {}
    ranks = len(glob.glob(glob.escape(prefix) + ".*.et"))
    for rank in range(ranks):
        with open(f"{prefix}.{rank}.et", "rb") as file:
            data = file.read()
        at, first = 0, True
        while at < len(data):
            size, at = varint(data, at)
            if not first:
                node = Node(rank, data[at:at + size])
                assert (rank, node.id) not in nodes, f"rank {rank}: id {node.id} twice"
                nodes[rank, node.id] = node
            first = False
            at += size
    groups = {"": list(range(ranks))}
    if os.path.exists(prefix + ".groups.json"):
        with open(prefix + ".groups.json") as file:
            groups.update(json.load(file))
    for node in nodes.values():
        node.parents = [nodes[node.rank, p] for p in node.parents]
        if node.type == COLL:
            assert node.rank in groups[node.group], f"rank {node.rank} is not in group {node.group}"
    return ranks, list(nodes.values()), groups


# ---- the longest path ------------------------------------------------------------------------------------------------


def exact(nodes):
    sends, meetings, counts, end = {}, {}, {}, {}
    for node in nodes:
        if node.type == SEND:
            assert node.key not in sends, f"two SENDs {node.key}"
            sends[node.key] = node
        if node.type == COLL: # in the order of the file
            k = counts[node.rank, node.group] = counts.get((node.rank, node.group), 0) + 1
            meetings.setdefault((node.group, k), []).append(node)
    met = {member: members for members in meetings.values() for member in members}

    def needs(node):
        return [p for member in met.get(node, [node]) for p in
                member.parents + ([sends[member.key]] if member.type == RECV else [])]

    stack = list(nodes)
    while stack:
        node = stack[-1]
        missing = [] if node in end else [p for p in needs(node) if p not in end]
        if not missing:
            end.setdefault(node, max((end[p] for p in needs(node)), default=0) + node.ps)
            stack.pop()
        stack += missing
    return max(end.values())


# ---- playing ---------------------------------------------------------------------------------------------------------


class Play:
    def __init__(self, ranks, nodes, groups, times):
        self.nodes, self.groups, self.times = nodes, groups, times
        self.now, self.sequence, self.events = 0, 0, []
        self.waiting = {node: len(node.parents) for node in nodes}
        self.children, self.ended = {}, set()
        self.ready = [[] for _ in range(ranks)] # heaps of (id, node)
        self.places = [{} for _ in range(ranks)] # place: the node that has it
        self.issued, self.meetings = {}, {}
        self.sent, self.receives = set(), {}
        for node in nodes:
            for parent in node.parents:
                self.children.setdefault(parent, []).append(node)
            if not node.parents:
                heapq.heappush(self.ready[node.rank], (node.id, node))

    def end_at(self, node, time):
        self.sequence += 1
        heapq.heappush(self.events, (time, self.sequence, node))

    def issue(self, node):
        if node.type == RECV:
            if node.key in self.sent:
                self.end_at(node, self.now)
            self.receives[node.key] = node
        elif node.type == COLL:
            k = self.issued[node.rank, node.group] = self.issued.get((node.rank, node.group), 0) + 1
            members = self.meetings.setdefault((node.group, k), [])
            members.append(node)
            assert node.attributes["comm_type"] == members[0].attributes["comm_type"], f"{node.name} meets another kind"
            assert node.attributes["comm_size"] == members[0].attributes["comm_size"], f"{node.name} meets another size"
            if len(members) == len(self.groups[node.group]):
                for member in members:
                    self.end_at(member, self.now + self.times[node])
        else:
            self.end_at(node, self.now + (0 if node.type == METADATA else self.times[node]))

    def issue_all(self, rank):
        back = []
        while self.ready[rank]:
            number, node = heapq.heappop(self.ready[rank])
            takes = node.type not in (RECV, METADATA)
            if takes and node.place in self.places[rank]:
                back.append((number, node))
                continue
            if takes:
                self.places[rank][node.place] = node
            self.issue(node)
        self.ready[rank] = back # sorted: a heap

    def end(self, node):
        self.ended.add(node)
        if self.places[node.rank].get(node.place) is node:
            del self.places[node.rank][node.place]
        if node.type == SEND:
            self.sent.add(node.key)
            if node.key in self.receives:
                self.end_at(self.receives[node.key], self.now)
        for child in self.children.get(node, []):
            self.waiting[child] -= 1
            if self.waiting[child] == 0:
                heapq.heappush(self.ready[child.rank], (child.id, child))
        self.issue_all(node.rank)

    def run(self):
        for rank in range(len(self.ready)):
            self.issue_all(rank)
        while self.events:
            self.now, _, node = heapq.heappop(self.events)
            self.end(node)
        return len(self.ended) == len(self.nodes)

    def explain(self):
        print(f"{len(self.nodes) - len(self.ended)} of {len(self.nodes)} nodes never end:")
        for rank, places in enumerate(self.places):
            for node in places.values():
                kept = [n.name for _, n in self.ready[rank] if n.place == node.place]
                print(f"  rank {rank}: '{node.name}' ({node.id}) has the place of {node.place}"
                      + (f", for which '{kept[0]}' waits" + (f" and {len(kept) - 1} more" if kept[1:] else "")
                         if kept else ""))


def main(prefix, count):
    ranks, nodes, groups = load(prefix)
    print(exact(nodes), sum(n.place == "cpu" for n in nodes), flush=True)
    for k in range(count):
        chance = random.Random(k)
        # Members of a collective take equally long.
        factors = {}
        times = {n: n.ps if k == 0 else int(n.ps * factors.setdefault((n.name, n.rank if n.type != COLL else 0),
                                                                      10 ** chance.uniform(-2, 2))) for n in nodes}
        attempt = Play(ranks, nodes, groups, times)
        if not attempt.run():
            print(f"{prefix}: play {k}")
            attempt.explain()
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
