"""The command: problems in, a table, JSON and a page out."""

import argparse
import datetime
import json
import os
import platform
import sys
import time

import torch

from .. import _library
from . import measure, page
from .peers import PEERS, Skip
from .problem import Problem, add_flags, suite


def arguments():
    parser = argparse.ArgumentParser(
        prog="python -m varflash.compare",
        description="Times varflash beside every other attention that can be imported, on the same tensors, taking turns; TFLOP/s count "
        "visible pairs only: two products of the forward, five of the backward.",
    )
    add_flags(parser)
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--suite", metavar="NAME", help="problems of a suite of the varflash command: default, bench, bench-dims, short, tune"
    )
    group.add_argument("--filter", default="", metavar="TEXT,...", help="of a suite, problems whose name contains TEXT, or one of several")
    group.add_argument("--peers", default=",".join(PEERS), metavar="NAME,...", help="(all: %(default)s)")
    group.add_argument("--forward-only", action="store_true", help="no backward, whatever the problem says")
    group.add_argument("--duration", type=float, default=0.1, metavar="S", help="seconds of timing for each peer and pass (0.1)")
    group.add_argument("--rounds", type=int, default=5, metavar="N", help="turns that the time is split into (5)")
    group.add_argument("--no-errors", action="store_true", help="do not compare with float64")
    group.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    group.add_argument("--json", metavar="FILE", help="write all results; - for standard output")
    group.add_argument("--html", metavar="FILE", help="write a page with plots")
    options = parser.parse_args()
    if bool(options.suite) == bool(options.seqlens_q):
        parser.error("give a problem (--seqlens-q ...) or --suite NAME")
    unknown = [name for name in options.peers.split(",") if name not in PEERS]
    if unknown:
        parser.error(f"peers: {', '.join(unknown)} is not one of {', '.join(PEERS)}")
    try:
        chosen = suite(options.suite) if options.suite else [Problem(options)]
    except ValueError as error:
        parser.error(str(error))
    chosen = [problem for problem in chosen if any(text in problem.name for text in options.filter.split(","))]
    if not chosen:
        parser.error(f"filter: no problem's name has {options.filter}")
    for path in (options.json, options.html):  # before the work, not after it
        if path and path != "-" and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            parser.error(f"{path}: there is no such folder that can be written to")
    return options, chosen


def circumstances(options):
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    return {
        "device": device,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "varflash": _library.version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python -m varflash.compare", *sys.argv[1:]]),
    }


def prepare(problem, names, options, backward):
    """({peer: (forward, backward or None)}, {peer: tensors to compare}, {peer: seconds of set-up}, {peer: why not})"""
    tensors = problem.tensors(options.device)
    calls, results, setup, skipped = {}, {}, {}, {}
    for name in names:
        start = time.monotonic()
        try:
            function = PEERS[name](problem, options.device)
            leaves = [t.detach().requires_grad_(backward) for t in tensors[:3]]
            out = function(*leaves)
            grads = torch.autograd.grad(out, leaves, tensors[3], retain_graph=True) if backward else ()
        except Skip as reason:
            skipped[name] = str(reason)
            continue
        except Exception as error:  # a peer that fails is left out, and said to have failed
            skipped[name] = f"failed: {(str(error).splitlines() or [type(error).__name__])[0][:120]}"
            continue

        def forward(function=function, inputs=tensors[:3]):
            with torch.no_grad():
                function(*inputs)

        def gradient(out=out, leaves=leaves):
            torch.autograd.grad(out, leaves, tensors[3], retain_graph=True)

        forward()  # without gradients some peers compile once more
        if options.device == "cuda":
            torch.cuda.synchronize()
        setup[name] = time.monotonic() - start
        calls[name] = forward, gradient if backward else None
        results[name] = (out.detach(), *grads)
    return tensors, calls, results, setup, skipped


def run(problem, options):
    """One record for each pass."""
    backward = problem.flags.backward and not options.forward_only
    tensors, calls, results, setup, skipped = prepare(problem, options.peers.split(","), options, backward)
    found = {} if options.no_errors else measure.errors(problem, tensors, results)
    del results
    records = []
    for number, which in enumerate(("forward", "backward") if backward else ("forward",)):
        timed = measure.times({name: pair[number] for name, pair in calls.items()}, options.duration, options.rounds, options.device)
        flops = problem.flops(which == "backward")
        peers = {name: measure.summary(samples, flops) for name, samples in timed.items()}
        for name in peers:
            wanted = ("o",) if which == "forward" else ("dq", "dk", "dv")
            peers[name]["errors"] = {operand: found[name][operand] for operand in wanted} if found else {}
        records.append({"problem": problem.name, "pass": which, "peers": peers, "setup_s": setup, "skipped": skipped})
    return records


def line(record, names):
    cells = []
    for name in names:
        peer = record["peers"].get(name)
        cells.append(f"{peer['tflops']:9.3g} ±{peer['spread'] * 50:3.0f}%" if peer else f"{'–':>15}")
    return f"{record['problem'][:34]:34} {record['pass']:8} " + " ".join(cells)


def main():
    options, problems = arguments()
    names = options.peers.split(",")
    facts = circumstances(options)
    out = sys.stderr if options.json == "-" else sys.stdout
    print(f"{facts['device']}, torch {facts['torch']}, varflash {facts['varflash']}; TFLOP/s, median of {options.rounds} turns", file=out)
    print(f"{'':43} " + " ".join(f"{name:>15}" for name in names), file=out)
    records, reasons, setup, code = [], {}, {}, 0
    try:
        for problem in problems:
            for record in run(problem, options):
                records.append(record)
                print(line(record, names), file=out, flush=True)
                for name, reason in record["skipped"].items():
                    reasons.setdefault(f"{name}: {reason}", record["problem"])
                setup.update({(record["problem"], name): seconds for name, seconds in record["setup_s"].items()})
            if options.device == "cuda":
                torch.cuda.empty_cache()
    except (KeyboardInterrupt, RuntimeError) as error:  # a device that a peer has broken, for example; what was measured counts
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        print(f"stopped after {len(records)} passes: {error!r}", file=out)
    for reason, first in reasons.items():
        print(f"left out: {reason} (first: {first})", file=out)
    for name in dict.fromkeys(name for _, name in setup):
        spent = [seconds for (_, peer), seconds in setup.items() if peer == name]
        if max(spent) >= 1:
            print(f"set-up of {name}, not timed: {sum(spent):.0f} s, {max(spent):.0f} s for one problem at most", file=out)
    if not options.no_errors:
        for peer, worst in page.worst_ratios(records).items():
            print(f"rms error of varflash / {peer}: {worst:.3g} at most", file=out)
    whole = {**facts, "peers": names, "records": records}
    if options.json == "-":
        json.dump(whole, sys.stdout, indent=1)
    elif options.json:
        with open(options.json, "w") as file:
            json.dump(whole, file, indent=1)
    if options.html:
        with open(options.html, "w") as file:
            file.write(page.render(whole))
    return code


if __name__ == "__main__":
    sys.exit(main())
