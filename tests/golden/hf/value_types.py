#!/usr/bin/env python3
"""Values of wrong types as read by transformers: FOLDER/value_types.json.

`values` are set, in turn, for every field of a family's configuration class and for every other name of a field
(attribute_map), in `bases`, a small file with all keys. `rows` is a list per family and key, with the field of an other
name, which the file then lacks, and an outcome for each value. 0: transformers refuses the file or cannot build the
model; 1: the model is as without it; a text: parameters and windows of another model, in variants.py's form.
Made with transformers 5.24.0 and PyTorch 2.15.0. Usage: value_types.py FOLDER
"""
import json
import pathlib
import random
import signal
import sys

import transformers
from make import windows_of
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from variants import CLASS_OF, FAMILIES, ROWS, WHOLE, build, fields_of, quiet, variant

VALUES = ["4", "", [], [[]], [4], ["x"], {}, {"a": 1}, True, False, 1.5, -1, 0, 1, 2, 1e300, 2**63 - 1, None]
OTHERS = {"transformers_version", "architectures", "output_hidden_states", "return_dict", "dtype", "id2label",
          "chunk_size_feed_forward", "is_encoder_decoder", "label2id", "problem_type", "use_cache",
          "bos_token_id", "eos_token_id", "eod_token_id", "sep_token_id", "initializer_range",
          "embedding_initializer_range", "pretraining_tp"}  # on which nothing depends


def too_long(*_):
    raise TimeoutError


def outcome(family, keys):
    signal.setitimer(signal.ITIMER_PROF, 3)  # of the processor: absurd numbers of layers
    try:
        _, text, layers, total = build(family, keys)
    except (Exception, MemoryError):
        return 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    windows = windows_of(text) if getattr(text, "sliding_window", None) else "f" * len(layers)
    return f"{total} {windows}"


def base_of(family):
    rng = random.Random(family + " types")
    while True:
        keys = variant(rng, family, ROWS - 1, None)
        try:
            model, text, _, _ = build(family, keys)
        except Exception:
            continue
        saved = (text if family in WHOLE else model.config).to_dict()
        saved = {k: v for k, v in saved.items() if k not in OTHERS and k != "_name_or_path"}
        if outcome(family, saved) == outcome(family, keys):  # as saved it must load again
            return dict(saved, model_type=family)


def main(folder):
    quiet()
    signal.signal(signal.SIGPROF, too_long)
    bases, rows = {}, []
    for family in FAMILIES:
        bases[family] = base_of(family)
        base = {k: v for k, v in bases[family].items() if k != "model_type"}
        usual = outcome(family, base)
        names = CONFIG_MAPPING[CLASS_OF.get(family, family)].attribute_map
        for key in sorted((set(fields_of(family)) | set(names) | {"head_dim"}) - OTHERS):
            beside = {k: v for k, v in base.items() if k != names.get(key)}
            found = [outcome(family, dict(beside, **{key: value})) for value in VALUES]
            rows.append([family, key, names.get(key), [1 if one == usual else one for one in found]])
        print(family, file=sys.stderr)
    with open(folder / "value_types.json", "w") as stream:
        print(json.dumps({"transformers": transformers.__version__, "values": VALUES})[:-1] + ',', file=stream)
        print('"bases": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in bases.items()) + "\n},",
              file=stream)
        print('"rows": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]}",
              file=stream)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
