"""Chakra traces by Google's protobuf library: shares nothing with rpsim. Needs protobuf and grpcio-tools (or protoc).

    chakra.py print PREFIX    checks PREFIX.*.et as an independent reader would, writes all nodes as text,
                              and demands that the library would have written the same bytes
    chakra.py run PREFIX      the makespan in ns of an export of rpsim, by a longest path over rp_ns and rp_ps
    chakra.py make FOLDER     writes traces as other programs write them
"""
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def schema():
    folder = tempfile.mkdtemp()
    arguments = ["-I" + HERE, "--python_out=" + folder, HERE + "/et_def.proto"]
    try:
        from grpc_tools import protoc
        status = protoc.main(["protoc"] + arguments)
    except ImportError:
        status = subprocess.call(["protoc"] + arguments)
    if status != 0:
        sys.exit("no protoc")
    sys.path.insert(0, folder)
    import et_def_pb2
    return et_def_pb2


def take_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def put_varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def read(pb, path):
    data = open(path, "rb").read()
    at, messages = 0, []
    while at < len(data):
        size, at = take_varint(data, at)
        message = (pb.Node if messages else pb.GlobalMetadata)()
        assert message.ParseFromString(data[at:at + size]) == size, path
        assert message.SerializeToString() == data[at:at + size], (path, at)
        from google.protobuf import unknown_fields
        assert len(unknown_fields.UnknownFieldSet(message)) == 0, (path, at)
        messages.append(message)
        at += size
    assert at == len(data), path
    return messages[0], messages[1:]


def attributes(node):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def load(pb, prefix):
    ranks = []
    for rank in range(len(glob.glob(glob.escape(prefix) + ".*.et"))):
        metadata, nodes = read(pb, f"{prefix}.{rank}.et")
        ids = set()
        for node in nodes:
            assert node.id not in ids and set(node.data_deps) <= ids, ("parents first", rank, node.id)
            ids.add(node.id)
            a = attributes(node)
            assert isinstance(a["is_cpu_op"], bool)
            if node.type in (pb.COMM_SEND_NODE, pb.COMM_RECV_NODE):
                assert a["comm_src" if node.type == pb.COMM_SEND_NODE else "comm_dst"] == rank
                assert a["comm_size"] > 0 and a["comm_src"] != a["comm_dst"]
        ranks.append((metadata, nodes))
    return ranks


def show(pb, prefix):
    for rank, (metadata, nodes) in enumerate(load(pb, prefix)):
        print(f"rank {rank} version {metadata.version}")
        for n in nodes:
            a = " ".join(f"{k}={v}" for k, v in attributes(n).items())
            deps = ",".join(str(d) for d in n.data_deps)
            print(f"{n.id} {pb.NodeType.Name(n.type)} '{n.name}' after [{deps}] at {n.start_time_micros} "
                  f"for {n.duration_micros}: {a}")


def run(pb, prefix):
    ranks = load(pb, prefix)
    end, nodes, sends, rounds = {}, {}, {}, {}
    for rank, (_, listed) in enumerate(ranks):
        count = 0
        for n in listed:
            nodes[rank, n.id] = n
            a = attributes(n)
            key = a.get("comm_src"), a.get("comm_dst"), a.get("comm_tag")
            if n.type == pb.COMM_SEND_NODE:
                assert key not in sends
                sends[key] = rank, n.id
            if n.type == pb.COMM_COLL_NODE:
                rounds.setdefault(count, []).append((rank, n.id))
                count += 1
    meets = {member: group for group in rounds.values() for member in group}

    def parents(key):
        n = nodes[key]
        out = [(key[0], d) for d in n.data_deps]
        if n.type == pb.COMM_RECV_NODE:
            a = attributes(n)
            out.append(sends[a["comm_src"], a["comm_dst"], a["comm_tag"]])
        return out

    def needs(key):
        return [p for member in meets.get(key, [key]) for p in parents(member)]

    stack = list(nodes)
    while stack:
        key = stack[-1]
        missing = [p for p in needs(key) if p not in end]
        if key in end or not missing:
            a = attributes(nodes[key])
            ps = a["rp_ns"] * 1000 + a.get("rp_ps", 0)
            end.setdefault(key, max([end[p] for p in needs(key)], default=0) + ps)
            stack.pop()
        else:
            stack += missing
    print(max(end.values()))


def make(pb, folder):
    def attribute(name, **value):
        return pb.AttributeProto(name=name, **value)

    def write(name, nodes, attr=()):
        with open(f"{folder}/{name}.et", "wb") as file:
            for m in [pb.GlobalMetadata(version="0.0.4", attr=attr)] + nodes:
                data = m.SerializeToString()
                file.write(put_varint(len(data)) + data)

    cpu, gpu = attribute("is_cpu_op", bool_val=True), attribute("is_cpu_op", bool_val=False)
    # ASTRA-sim's sample all_reduce_4npus_1MB.
    for rank in range(4):
        write(f"all_reduce.{rank}", [pb.Node(name="all_reduce_4npus_1MB", type=pb.COMM_COLL_NODE, attr=[
            gpu, attribute("comm_type", int64_val=0), attribute("comm_size", int64_val=1048576)])])

    def peer(kind, id, src, dst, tag, size, **rest):
        return pb.Node(id=id, name=kind, type=pb.NodeType.Value(f"COMM_{kind}_NODE"), attr=[
            gpu, attribute("comm_src", int32_val=src), attribute("comm_dst", int32_val=dst),
            attribute("comm_tag", int32_val=tag), attribute("comm_size", int64_val=size)], **rest)

    # Two ranks, times in microseconds: two computations that compete, a control dependency, attributes of every
    # kind, a measured transfer and a CPU op. Rank 0: 100 + 50, sent at 150, there at 175; rank 1: 20 on the CPU
    # beside 30, then 200 from 175 on.
    write("pipe.0", [
        pb.Node(id=7, name="F", type=pb.COMP_NODE, duration_micros=100,
                inputs=pb.IOInfo(values="[1]", shapes="[[2]]", types="['f']"),
                attr=[gpu, attribute("num_ops", int64_val=12), attribute("tensor_size", uint64_val=3),
                      attribute("x", double_list=pb.DoubleList(values=[1, 2])), attribute("y", float_val=1.5),
                      attribute("z", string_list=pb.StringList(values=["a", "b"])),
                      attribute("involved_dim", bool_list=pb.BoolList(values=[True, False])),
                      attribute("stream", int64_val=-7), attribute("d", double_val=2.5, doc_string="what")]),
        pb.Node(id=8, name="G", type=pb.COMP_NODE, duration_micros=50, attr=[gpu]),
        peer("SEND", 9, 0, 1, 5, 1000, ctrl_deps=[8], data_deps=[7], duration_micros=25),
    ], attr=[attribute("schema", string_val="1.1.1-chakra.0.0.4")])
    write("pipe.1", [
        pb.Node(id=0, name="H", type=pb.COMP_NODE, duration_micros=30, attr=[gpu]),
        pb.Node(id=1, name="C", type=pb.COMP_NODE, duration_micros=20, attr=[cpu]),
        peer("RECV", 2, 0, 1, 5, 1000, data_deps=[0]),
        pb.Node(id=3, name="B", type=pb.COMP_NODE, duration_micros=200, data_deps=[2, 1], attr=[gpu]),
        pb.Node(id=4, name="m", type=pb.METADATA_NODE),
    ])
    # Times from sizes: on a link of L bytes per second two loads after each other, and a store beside them.
    write("memory.0", [
        pb.Node(id=1, name="a", type=pb.MEM_LOAD_NODE, attr=[gpu, attribute("tensor_size", uint64_val=10**9)]),
        pb.Node(id=2, name="b", type=pb.MEM_LOAD_NODE, attr=[gpu, attribute("tensor_size", uint64_val=2 * 10**9)]),
        pb.Node(id=3, name="c", type=pb.MEM_STORE_NODE, attr=[gpu, attribute("tensor_size", uint64_val=10**9)]),
    ])


if __name__ == "__main__":
    {"print": show, "run": run, "make": make}[sys.argv[1]](schema(), sys.argv[2])
