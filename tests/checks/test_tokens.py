"""exec/data/make_tokens.py makes of each text the tokens of Hugging Face's tokenizers, rpexec trains on them, and bad
texts are refused with nothing left. Skipped if Python has no tokenizers (RP_PYTHON).
"""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from conftest import DATA, PYTHON, SOURCE, need_python, ran

CONFIG = {**json.loads((DATA / "golden/decoders/llama/config.json").read_text()), "vocab_size": 320}
# Makes a tokenizer in model/, and tokens.json of documents.json.
TOKENIZE = """import json
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
documents = json.load(open("documents.json"))
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([open("README.md").read()], trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>",
    "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
tokenizer.save("model/tokenizer.json")
tokens = [tokenizer.encode(text).ids for text in documents]
json.dump(tokens, open("tokens.json", "w"))
assert "東京" in tokenizer.decode(sum(tokens, []))
"""
BAD = {  # file: its bytes, and why they are refused
    "key.jsonl": (b'{"text": "a"}\n{"txt": "b"}\n', "key.jsonl:2: no text under 'text'"),
    "number.jsonl": (b'{"text": "a"}\n{"text": 5}\n', "number.jsonl:2: no text under"),
    "open.jsonl": (b'{"text": "a"}\n{"text": "b"\n', "open.jsonl:2: no JSON"),
    "half.jsonl": (b'{"text": "a\\ud800"}\n', "half.jsonl:1: half of a surrogate pair"),
    "list.jsonl": (b'["a"]\n', "list.jsonl:1: no text under"),
    "latin.txt": (b"a\377b", "latin.txt: byte 1 is no UTF-8"),
    "empty.txt": (b"", "the texts have no tokens"),
}
TRAIN = "rpexec --backend host --gpus 2 --microbatches 2 --seq-len 32 --model model/config.json --data"


def make(options, **expected):
    environment = {"TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": 1}
    ran(PYTHON, SOURCE / "exec/data/make_tokens.py", "--tokenizer", *options.split(), env=environment, **expected)


@pytest.fixture(scope="module", autouse=True)
def documents(shared):
    """The tokens of each document of texts.jsonl and LICENSE, of which tokens.bin is made."""
    need_python("tokenizers", advice="tests/tools/checkpoints_venv.sh")
    for name in ("README.md", "LICENSE"):
        shutil.copy(SOURCE / name, name)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(CONFIG))
    Path("model/tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
    texts = [text for text in Path("README.md").read_text().split("\n\n") if text]
    texts += ["x", "Zürich 東京 \U0001f600", ""]
    rows = [json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(texts)]
    Path("texts.jsonl").write_text("".join(rows[:3]) + "\n" + "".join(rows[3:]))  # with an empty line
    Path("documents.json").write_text(json.dumps(texts[:-1] + [Path("LICENSE").read_text()]))
    ran(PYTHON, "-c", TOKENIZE)
    shutil.copytree("model", "small")
    Path("small/config.json").write_text(json.dumps({**CONFIG, "vocab_size": 200}))
    for name, (content, _) in BAD.items():
        Path(name).write_bytes(content)
    os.mkfifo("fifo.jsonl")
    make("model --out tokens.bin texts.jsonl LICENSE", said="of a vocabulary of 320")
    return json.loads(Path("tokens.json").read_text())


def test_prompts(documents):
    """They are the tokens whose text ends within the prompt; a key that is missing is refused."""
    pairs = [("A question?", " Its answer."), ("", "x"), ("Zürich 東京 ", "\U0001f600"), ("all", "")]
    lines = [json.dumps({"prompt": prompt, "completion": text}) + "\n" for prompt, text in pairs]
    Path("pairs.jsonl").write_text("".join(lines))
    make("model --out pairs.bin --prompt prompt --field completion pairs.jsonl", said="4 documents")
    data = Path("pairs.bin").read_bytes()
    *header, count, number = struct.unpack_from("<8sIIIIQQ", data)
    assert header == [b"RPTOKENS", 3, 2, 320, 0] and len(data) == 40 + 2 * count + 16 * number
    tokens = struct.unpack_from(f"<{count}H", data, 40)
    places = struct.unpack_from(f"<{2 * number}Q", data, 40 + 2 * count)
    decode = ("import json, sys; from tokenizers import Tokenizer; t = Tokenizer.from_file('model/tokenizer.json');"
              "print(json.dumps([t.decode(ids) for ids in json.loads(sys.argv[1])]))")
    parts = [ids for start, prompt, end in zip(places, places[number:], places[1:number] + (count,))
             for ids in (tokens[start:start + prompt], tokens[start + prompt:end])]
    texts = json.loads(ran(PYTHON, "-c", decode, json.dumps(parts)).out)
    assert list(zip(texts[::2], texts[1::2])) == pairs
    ran(TRAIN.replace("--seq-len 32", "--seq-len 8"), "pairs.bin", "--steps", 1)
    make("model --out none.bin --prompt question pairs.jsonl", status=2, said="pairs.jsonl:1: no text under 'question'")


def test_tokens(documents):
    expected = [tokens + [1] for tokens in documents]
    data = Path("tokens.bin").read_bytes()
    *header, count, number = struct.unpack_from("<8sIIIIQQ", data)
    assert header == [b"RPTOKENS", 2, 2, 320, 0]
    assert len(data) == 40 + 2 * count + 8 * number and number == len(expected) > 5
    tokens = struct.unpack_from(f"<{count}H", data, 40)
    starts = struct.unpack_from(f"<{number}Q", data, 40 + 2 * count)
    assert [list(tokens[a:b]) for a, b in zip(starts, starts[1:] + (count,))] == expected and starts[0] == 0
    assert all(ids[0] == 0 for ids in expected)
    Path("plain").touch()
    assert os.stat("tokens.bin").st_mode == os.stat("plain").st_mode, "others cannot read it"


def test_training():
    ran(f"{TRAIN} tokens.bin --steps 3 --check", said="the same bits")
    ran(f"{TRAIN} texts.jsonl --steps 1 --bytes", said="tokens/s")
    ran(f"{TRAIN} texts.jsonl --steps 1", status=2, said="make_tokens.py makes of texts")
    ran("rpexec --backend host --steps 1 --data tokens.bin", status=2, said="a vocabulary of 320, the model has 256")


def test_tokenizer_alone():
    """Without a vocabulary or an end."""
    Path("alone").mkdir()
    shutil.copy("model/tokenizer.json", "alone")
    make("alone --out none.bin texts.jsonl", status=2, said="no end-of-sequence token")
    make("alone --eos </t> --out none.bin texts.jsonl", status=2, said="has no token '</t>'")
    make("alone/tokenizer.json --eos none --out ends.bin texts.jsonl", said="of a vocabulary of 300")
    ran(f"{TRAIN} ends.bin --steps 1", said="its table has rows to spare")


@pytest.mark.parametrize("tokenizer, files, said", [("model", name, said) for name, (_, said) in BAD.items()] + [
    ("model", "texts.jsonl number.jsonl", "number.jsonl:2: no text under"),
    ("model", "nowhere.txt", "nowhere.txt: No such file"),
    ("model", "fifo.jsonl", "fifo.jsonl: no regular file"),
    ("small", "texts.jsonl", "beyond the vocabulary of 200"),
    ("key.jsonl", "texts.jsonl", "no tokenizer"),
])
def test_bad_texts(tokenizer, files, said):
    make(f"{tokenizer} --out none.bin {files}", status=2, said=said)
    assert not list(Path().glob("*none.bin*"))


def test_bad_outputs():
    make("model --out nowhere/x.bin texts.jsonl", status=2, said="No such file")
    make("model --out fifo.jsonl texts.jsonl", status=2, said="fifo.jsonl: no regular file")
