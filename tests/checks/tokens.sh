#!/usr/bin/env bash
# tokens.sh SOURCE BUILD: exec/data/make_tokens.py makes of texts what Hugging Face's tokenizers says of each document,
# rpexec trains on it, and bad texts are refused with nothing left. Skipped where Python has no tokenizers (RP_PYTHON).
source "$(dirname "$0")/lib/check.sh"
rpexec=$2/exec/rpexec
export PYTHONDONTWRITEBYTECODE=1 TOKENIZERS_PARALLELISM=false
python=${RP_PYTHON:-python3}
if ! "$python" -c 'import tokenizers' 2>/dev/null; then
    echo "skipped: no tokenizers for $python (RP_PYTHON, tests/tools/checkpoints_venv.sh)"
    exit 77
fi
make=("$python" "$1/exec/data/make_tokens.py")
mkdir "$work/model"
cat >"$work/model/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": 320,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": true}
JSON
"$python" - "$1" "$work" <<'PYTHON'
import json, pathlib, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
source, work = map(pathlib.Path, sys.argv[1:])
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
text = (source / "README.md").read_text()
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
tokenizer.save(str(work / "model/tokenizer.json"))
(work / "model/tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
lines = [line for line in text.split("\n\n") if line] + ["x", "Zürich 東京 \U0001f600", ""]
with (work / "texts.jsonl").open("w") as stream:
    for number, line in enumerate(lines):
        stream.write(json.dumps({"text": line, "id": number}) + "\n" + ("\n" if number == 2 else ""))
PYTHON
cd "$work"
expect 0 "of a vocabulary of 320" "${make[@]}" --tokenizer model --out tokens.bin texts.jsonl "$1/LICENSE"
[ "$(stat -c %a tokens.bin)" = "$(touch plain && stat -c %a plain)" ] || fail "tokens.bin: others cannot read it"
"$python" - "$1" >out 2>&1 <<'PYTHON' || fail "$(cat out)"
import json, pathlib, struct, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file("model/tokenizer.json")
texts = [json.loads(line)["text"] for line in open("texts.jsonl") if line.strip()]
texts = [text for text in texts if text] + [pathlib.Path(sys.argv[1], "LICENSE").read_text()]
expected = [tokenizer.encode(text).ids + [1] for text in texts]
data = pathlib.Path("tokens.bin").read_bytes()
magic, version, width, vocabulary, zero, count, documents = struct.unpack_from("<8sIIIIQQ", data)
assert (magic, version, width, vocabulary, zero) == (b"RPTOKENS", 2, 2, 320, 0), "header"
tokens = struct.unpack_from(f"<{count}H", data, 40)
starts = struct.unpack_from(f"<{documents}Q", data, 40 + 2 * count)
assert len(data) == 40 + 2 * count + 8 * documents and documents == len(expected) > 5, "lengths"
assert list(tokens) == sum(expected, []), "tokens"
assert [list(tokens[a:b]) for a, b in zip(starts, starts[1:] + (count,))] == expected, "documents"
assert all(ids[0] == 0 for ids in expected) and "東京" in tokenizer.decode(list(tokens))
PYTHON
train=("$rpexec" --backend host --gpus 2 --microbatches 2 --seq-len 32 --model model/config.json)
expect 0 "the same bits" "${train[@]}" --steps 3 --data tokens.bin --check
expect 0 "tokens/s" "${train[@]}" --steps 1 --data texts.jsonl --bytes
expect 2 "make_tokens.py makes of texts" "${train[@]}" --steps 1 --data texts.jsonl
expect 2 "a vocabulary of 320, the model has 256" "$rpexec" --backend host --steps 1 --data tokens.bin

# ---- without a vocabulary or an end
mkdir alone
cp model/tokenizer.json alone
expect 2 "no end-of-sequence token" "${make[@]}" --tokenizer alone --out none.bin texts.jsonl
expect 2 "has no token '</t>'" "${make[@]}" --tokenizer alone --eos "</t>" --out none.bin texts.jsonl
expect 0 "of a vocabulary of 300" "${make[@]}" --tokenizer alone/tokenizer.json --eos none --out ends.bin texts.jsonl
expect 0 "its table has rows to spare" "${train[@]}" --steps 1 --data ends.bin

# ---- bad texts
refused()
{
    expect 2 "$1" "${make[@]}" --tokenizer "${2:-model}" --out none.bin "${@:3}"
    [ -z "$(find . -maxdepth 1 -name '*none.bin*')" ] || fail "$1: $(find . -name '*none.bin*') is left"
}
printf '{"text": "a"}\n{"txt": "b"}\n' >key.jsonl
printf '{"text": "a"}\n{"text": 5}\n' >number.jsonl
printf '{"text": "a"}\n{"text": "b"\n' >open.jsonl
printf '{"text": "a\\ud800"}\n' >half.jsonl
printf 'a\377b' >latin.txt
printf '["a"]\n' >list.jsonl
: >empty.txt
mkfifo fifo.jsonl
sed 's/320/200/' model/config.json >small.json
mkdir small && cp model/*.json small && mv small.json small/config.json
refused "key.jsonl:2: no text under 'text'" "" key.jsonl
refused "number.jsonl:2: no text under" "" texts.jsonl number.jsonl
refused "open.jsonl:2: no JSON" "" open.jsonl
refused "half.jsonl:1: half of a surrogate pair" "" half.jsonl
refused "list.jsonl:1: no text under" "" list.jsonl
refused "latin.txt: byte 1 is no UTF-8" "" latin.txt
refused "the texts have no tokens" "" empty.txt
refused "nowhere.txt: No such file" "" nowhere.txt
refused "fifo.jsonl: no regular file" "" fifo.jsonl
refused "beyond the vocabulary of 200" small texts.jsonl
refused "no tokenizer" key.jsonl texts.jsonl
expect 2 "No such file" "${make[@]}" --tokenizer model --out nowhere/x.bin texts.jsonl
expect 2 "fifo.jsonl: no regular file" "${make[@]}" --tokenizer model --out fifo.jsonl texts.jsonl
end
