#!/usr/bin/env python3
"""Texts as a token file for rpexec --data, by a model's own tokenizer.

Usage: make_tokens.py --tokenizer DIR|FILE --out FILE [--eos TOKEN|none] [--field NAME]
                      [--prompt NAME] TEXT...

A TEXT whose name ends in .jsonl has a document in each line: an object with the key `text`
(--field). With --prompt NAME the text under that key comes before it, and is read but not learned.
Any other TEXT is a document. Documents are encoded as transformers' tokenizer(text) does,
with the tokens that tokenizer.json puts around each, and end with the end-of-sequence token:
--eos, or that of tokenizer_config.json, generation_config.json or config.json beside tokenizer.json.
Empty documents are left out. The vocabulary is vocab_size of config.json, where there is one, else
the tokenizer's. FILE appears when it is whole. Its form: common/formats/formats.md, 10.

Needs Hugging Face's tokenizers (pip install tokenizers). Exit status 2: bad input.
"""
import argparse
import array
import json
import os
import pathlib
import signal
import stat
import struct
import sys
import tempfile

MAGIC = b"RPTOKENS"
HEADER = struct.Struct("<8sIIIIQQ")  # magic, version, bytes per token, vocabulary, 0, tokens, documents
BATCH_CHARACTERS = 1 << 22  # of documents that are encoded together


class Refusal(Exception):
    """What is wrong with an input, and what is valid."""


def check_regular(path):
    """A FIFO is refused before anybody waits for it."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from None
    if not regular:
        raise Refusal(f"{path}: no regular file; valid are texts and .jsonl files")


def read_bytes(path):
    check_regular(path)
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from None


def read_json(path):
    try:
        value = json.loads(read_bytes(path).decode())
    except ValueError as error:
        raise Refusal(f"{path}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(f"{path}: valid is a JSON object")
    return value


# ---- tokenizer -----------------------------------------------------------------------------------

class Model:
    def __init__(self, given):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise Refusal("Hugging Face's tokenizers is not there: pip install tokenizers") from None
        path = pathlib.Path(given)
        path = path / "tokenizer.json" if path.is_dir() else path
        self.folder = path.parent
        self.path = path
        text = read_bytes(path)
        try:
            self.tokenizer = Tokenizer.from_str(text.decode())
        except Exception as error:  # the package raises nothing narrower
            raise Refusal(f"{path}: no tokenizer: {error}") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def beside(self, name):
        path = self.folder / name
        return read_json(path) if path.exists() else {}

    def vocabulary(self):
        config = self.beside("config.json")
        nested = config.get("text_config")
        size = config.get("vocab_size", nested.get("vocab_size") if isinstance(nested, dict) else None)
        if size is None:
            return self.tokenizer.get_vocab_size()
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 31:
            raise Refusal(f"{self.folder / 'config.json'}: vocab_size: valid are integers from 1")
        return size

    def eos(self, given):
        """The number of the token that documents end with; None: none."""
        if given == "none":
            return None
        token = given
        if token is None:
            token = self.beside("tokenizer_config.json").get("eos_token")
            token = token.get("content") if isinstance(token, dict) else token
        for name in ("generation_config.json", "config.json"):
            if token is None:
                token = self.beside(name).get("eos_token_id")
                token = token[0] if isinstance(token, list) and token else token
        if isinstance(token, int) and not isinstance(token, bool):
            return token
        number = self.tokenizer.token_to_id(token) if isinstance(token, str) else None
        if number is None:
            what = "no end-of-sequence token is named beside it" if token is None else f"has no token {token!r}"
            raise Refusal(f"{self.path}: {what}; valid are --eos TOKEN of the tokenizer and --eos none")
        return number


# ---- documents -----------------------------------------------------------------------------------

def lines_of(path):
    """Pairs of a place and a line; a file of lines may be larger than memory."""
    try:
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield f"{path}:{number}", line
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from None


def decoded(place, line):
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Refusal(f"{place}: byte {error.start} is no UTF-8; valid are texts in UTF-8") from None


def documents(paths, field, prompt):
    """A place, a text that is not empty, and how many of its characters are a prompt."""
    for path in paths:
        if not path.endswith(".jsonl"):
            text = decoded(path, read_bytes(path))
            if text:
                yield path, text, 0
            continue
        for place, line in lines_of(path):
            try:
                value = json.loads(decoded(place, line))
            except (ValueError, RecursionError) as error:
                raise Refusal(f"{place}: no JSON: {error}") from None
            before = value.get(prompt) if prompt is not None and isinstance(value, dict) else ""
            if not isinstance(before, str):
                raise Refusal(f"{place}: no text under {prompt!r}; valid are objects that have one, and --prompt NAME")
            text = value.get(field) if isinstance(value, dict) else None
            if not isinstance(text, str):
                raise Refusal(f"{place}: no text under {field!r}; valid are objects that have one, and --field NAME")
            text = before + text
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Refusal(f"{place}: half of a surrogate pair; valid are texts in Unicode") from None
            if text:
                yield place, text, len(before)


def batches(pairs):
    batch, characters = [], 0
    for pair in pairs:
        batch.append(pair)
        characters += len(pair[1])
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encoded(model, pairs, vocabulary, eos):
    """The tokens of each document, and how many of them are its prompt."""
    for batch in batches(pairs):
        for (place, _, before), encoding in zip(batch, model.tokenizer.encode_batch([text for _, text, _ in batch])):
            ids = encoding.ids
            answer = (i for i, (_, end) in enumerate(encoding.offsets) if end > before)
            prompt = next(answer, len(ids)) if before else 0
            if eos is not None and (not ids or ids[-1] != eos):
                ids = ids + [eos]
            if ids and max(ids) >= vocabulary:
                raise Refusal(f"{place}: token {max(ids)} is beyond the vocabulary of {vocabulary}; valid are "
                              "tokenizer.json and config.json of one model")
            if ids:
                yield ids, prompt


# ---- output --------------------------------------------------------------------------------------

def write(stream, sequences, vocabulary):
    """@return numbers of tokens and documents"""
    kind = "H" if vocabulary <= 1 << 16 else "I"
    starts, prompts, count = array.array("Q"), array.array("Q"), 0
    stream.write(bytes(HEADER.size))
    for ids, prompt in sequences:
        starts.append(count)
        prompts.append(prompt)
        count += len(ids)
        stream.write(little(array.array(kind, ids)))
    if count == 0:
        raise Refusal("the texts have no tokens; valid are texts that are not empty")
    version = 3 if any(prompts) else 2
    stream.write(little(starts) + (little(prompts) if version == 3 else b""))
    stream.seek(0)
    stream.write(HEADER.pack(MAGIC, version, array.array(kind).itemsize, vocabulary, 0, count, len(starts)))
    return count, len(starts)


def little(values):
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def write_whole(path, sequences, vocabulary):
    """Under its name when it is on disk, as all outputs."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        raise Refusal(f"{path}: no regular file; valid is the name of a new file, or of one to be replaced")
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with open(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o666 & ~mask())
            counts = write(stream, sequences, vocabulary)
            stream.flush()
            os.fsync(descriptor)
        os.rename(temporary, path)
        temporary = None
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return counts
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def mask():
    value = os.umask(0)
    os.umask(value)
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, metavar="DIR|FILE")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--eos", metavar="TOKEN|none")
    parser.add_argument("--field", default="text", metavar="NAME")
    parser.add_argument("--prompt", metavar="NAME")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # nothing half-written stays
    model = Model(options.tokenizer)
    vocabulary, eos = model.vocabulary(), model.eos(options.eos)
    for path in options.texts:
        check_regular(path)
    pairs = documents(options.texts, options.field, options.prompt)
    count, number = write_whole(options.out, encoded(model, pairs, vocabulary, eos), vocabulary)
    print(f"{options.out}: {count} tokens of a vocabulary of {vocabulary}, {number} documents")


if __name__ == "__main__":
    try:
        main()
    except Refusal as refusal:
        print(f"make_tokens.py: {refusal}", file=sys.stderr)
        sys.exit(2)
