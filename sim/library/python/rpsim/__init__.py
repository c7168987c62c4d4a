"""Simulations of pipeline schedules on GPUs, by librpsim.

    import rpsim
    rows = rpsim.run(["--schedule", "roundpipe", "--model", "llama3.1-8b"])
    print(rows[0]["tokens_per_s"], rows[0]["fits"])

`run` takes the options of rpsim and returns what its `--format json` prints; `simulate` keeps the
timelines besides; `advise` searches as rpadvise does. Keys and options are described in docs/generated of the project. Several threads
may call at once; the interpreter's lock is released while a simulation runs.
"""

import ctypes
import json
import os
import pathlib
import sysconfig
import typing
import warnings

__all__ = [
    *("Error", "InputError", "Op", "Simulation"),
    *("advise", "names", "run", "simulate", "version"),
]

_NAME = "librpsim.so.0"


class Error(Exception):
    """A run failed; the text names the cause."""


class InputError(Error, ValueError):
    """An option, a file or a combination of them is refused; the text names what is valid."""


class Op(typing.NamedTuple):
    """One op of a run: rp_timed_op of rpsim.h."""

    kind: str  # "F", "B", "UPLOAD_PARAMS"
    meaning: str  # "forward"
    queue: str  # "compute", "param-upload"
    gpu: typing.Optional[int]  # None: the host
    stage: int
    microbatch: int
    layer: int  # 0: all layers of the stage
    iteration: int
    waited_for: typing.Optional[int]  # index of the op whose end this one waited for last
    start_ms: float
    end_ms: float


class _Settings(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("schedule", ctypes.c_char_p),
        *((name, ctypes.c_void_p) for name in ("model", "platform", "costs")),
        *(
            (name, ctypes.c_char_p)
            for name in ("fidelity", "partition", "recompute", "grain", "dtype", "optimizer")
        ),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "gpus",
                "nodes",
                "microbatches",
                "microbatch_size",
                "seq_len",
                "global_batch",
                "accumulate",
                "iterations",
                "lora_rank",
                "intervals",
            )
        ),
        ("seed", ctypes.c_uint64),
        ("keep_timeline", ctypes.c_int32),
        ("option_count", ctypes.c_uint32),
        ("options", ctypes.POINTER(ctypes.c_char_p)),
        ("accumulation", ctypes.c_char_p),
    ]


class _TimedOp(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_char_p) for name in ("kind", "meaning", "queue")),
        ("gpu", ctypes.c_int32),
        *(
            (name, ctypes.c_uint32)
            for name in ("stage", "microbatch", "layer", "iteration", "waited_for")
        ),
        ("start_ms", ctypes.c_double),
        ("end_ms", ctypes.c_double),
    ]


_NO_OP = 0xFFFFFFFF
_KINDS = ("models", "platforms", "costs", "schedules")


def _places():
    """Files that may be the library: in a wheel, then in the installation that this file is of."""
    here = pathlib.Path(__file__).resolve().parent
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for folder in [here, *list(here.parents)[:4]]:
        for below in dict.fromkeys(("lib", f"lib/{multiarch}", "lib64")):
            yield folder / below / _NAME


def _load():
    path = next((str(place) for place in _places() if place.is_file()), _NAME)
    if os.environ.get("RP_LIBRARY"):
        path = os.path.abspath(os.environ["RP_LIBRARY"])
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"rpsim: the library cannot be loaded: {error}; RP_LIBRARY names its file"
        ) from error
    text, number, pointer = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p
    texts = ctypes.POINTER(text)
    for name, result, arguments in (
        ("rp_version", text, []),
        ("rp_last_error", text, []),
        ("rp_last_warnings", text, []),
        ("rp_run_json", ctypes.c_int, [ctypes.c_int, texts, ctypes.POINTER(pointer)]),
        ("rp_advise_json", ctypes.c_int, [ctypes.c_int, texts, ctypes.POINTER(pointer)]),
        ("rp_free_json", None, [pointer]),
        (
            "rp_names",
            ctypes.c_int,
            [ctypes.c_int, ctypes.POINTER(texts), ctypes.POINTER(number)],
        ),
        ("rp_free_names", None, [texts]),
        (
            "rp_simulation_prepare",
            ctypes.c_int,
            [ctypes.POINTER(_Settings), ctypes.POINTER(pointer)],
        ),
        ("rp_simulation_run", ctypes.c_int, [pointer]),
        ("rp_simulation_free", None, [pointer]),
        ("rp_simulation_json", ctypes.c_int, [pointer, ctypes.POINTER(pointer)]),
        (
            "rp_simulation_ops",
            ctypes.c_int,
            [
                pointer,
                number,
                ctypes.POINTER(ctypes.POINTER(_TimedOp)),
                ctypes.POINTER(number),
            ],
        ),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_library = _load()


def version():
    """Version of the library, "MAJOR.MINOR.PATCH"."""
    return _library.rp_version().decode()


__version__ = version()


def _words(options):
    """Options as C has them: [n] texts."""
    if isinstance(options, (str, bytes)):
        raise TypeError("rpsim: options are a list of texts, as sys.argv[1:] is")
    words = [os.fsencode(word if isinstance(word, (str, bytes)) else str(word)) for word in options]
    for word in words:
        if b"\0" in word:
            raise ValueError(f"rpsim: a NUL byte in {word!r}")
    return (ctypes.c_char_p * len(words))(*words)


def _check(code, level=3):
    """Passes warnings of the last call on, and raises its error."""
    for line in _library.rp_last_warnings().decode(errors="replace").splitlines():
        warnings.warn(line, stacklevel=level)
    if code != 0:
        message = _library.rp_last_error().decode(errors="replace")
        raise (InputError if code == 2 else Error)(message)


def _take_json(text):
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        _library.rp_free_json(text)


def _json(function, options):
    """The output of a function that takes a command line and gives JSON."""
    words = _words(options)
    text = ctypes.c_void_p()
    code = function(len(words), words, ctypes.byref(text))
    rows = _take_json(text) if code == 0 else None  # first: warnings may be exceptions
    _check(code, 4)
    return rows


def run(options):
    """Does what `rpsim OPTIONS --format json` does.

    options: rpsim's options, a sequence; numbers and paths are turned into text.
    Returns a list with one dict per run, or the object of --flows.
    Warnings of rpsim are UserWarnings. Raises InputError for bad options and files (rpsim would
    exit with 2), Error where a run fails (1).
    """
    return _json(_library.rp_run_json, options)


def advise(options=(), **settings):
    """Does what `rpadvise OPTIONS --format json` does: advise(model="llama3.1-8b", nodes=2).

    options: rpadvise's options, a sequence. settings: the same by name, with _ for -; a list is
    joined by commas, None is no option.
    Returns a list with one dict per row of the answer, best first. If nothing fits, the only dict
    has the run that comes nearest, with False as "fits". Raises as run does.
    """
    words = list(_words(options))
    for name, value in settings.items():
        if value is not None:
            value = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            words += ["--" + name.replace("_", "-"), value]
    return _json(_library.rp_advise_json, words)


def names(kind):
    """Names that `rpsim --list KIND` prints, a list. kind: models, platforms, costs, schedules."""
    if kind not in _KINDS:
        raise InputError(f"rpsim.names: unknown kind {kind!r}; valid are {', '.join(_KINDS)}")
    list_out = ctypes.POINTER(ctypes.c_char_p)()
    count = ctypes.c_uint32()
    _check(_library.rp_names(_KINDS.index(kind), ctypes.byref(list_out), ctypes.byref(count)))
    try:
        return [list_out[i].decode() for i in range(count.value)]
    finally:
        _library.rp_free_names(list_out)


class Simulation:
    """Runs that have been simulated, with their timelines; of `simulate`.

    rows: what `run` returns.
    """

    def __init__(self, options):
        self._handle = ctypes.c_void_p()
        words = _words(options)
        settings = _Settings(size=ctypes.sizeof(_Settings), keep_timeline=1)
        settings.options = words
        settings.option_count = len(words)
        _check(
            _library.rp_simulation_prepare(ctypes.byref(settings), ctypes.byref(self._handle)), 4
        )
        _check(_library.rp_simulation_run(self._handle), 4)
        text = ctypes.c_void_p()
        _check(_library.rp_simulation_json(self._handle, ctypes.byref(text)), 4)
        self.rows = _take_json(text)

    def ops(self, index=0):
        """All ops of rows[index], a list of Op: queue by queue, each in the order of time."""
        list_out = ctypes.POINTER(_TimedOp)()
        count = ctypes.c_uint32()
        if not 0 <= index < len(self.rows):
            raise IndexError(f"rpsim: no run {index}, there are {len(self.rows)}")
        _check(
            _library.rp_simulation_ops(
                self._handle, index, ctypes.byref(list_out), ctypes.byref(count)
            )
        )
        return [
            Op(
                op.kind.decode(),
                op.meaning.decode(),
                op.queue.decode(),
                op.gpu if op.gpu >= 0 else None,
                op.stage,
                op.microbatch,
                op.layer,
                op.iteration,
                op.waited_for if op.waited_for != _NO_OP else None,
                op.start_ms,
                op.end_ms,
            )
            for op in list_out[: count.value]
        ]

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _library.rp_simulation_free(handle)


def simulate(options):
    """As run, but keeps every run's timeline: returns a Simulation, its `rows` and `ops(index)`.

    Nothing is drawn (--intervals) unless the options ask for it.
    """
    return Simulation(options)
