"""The comparison tool: its flags, its counting, its errors, what it writes."""

import argparse
import json
import shlex
import sys

import pytest
import reference
import torch

import varflash
from varflash import fa3, fa4
from varflash.compare import __main__ as command
from varflash.compare import measure, page, peers
from varflash.compare.problem import Problem, add_flags


def problem(flags):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return Problem(parser.parse_args(shlex.split(flags)))


@pytest.mark.parametrize("mask", ["", "--causal", "--window 3,1", "--window inf,2", "--window 0,inf"])
def test_pairs_are_the_visible_ones(mask):
    drawn = problem(f"--seqlens-q 5x2,0,9,1 --seqlens-k 7,5,3,2,4 {mask}")
    expected = sum(int(reference.visible(n, m, False, drawn.window).sum()) for n, m in zip(drawn.lengths_q, drawn.lengths_k))
    assert drawn.pairs() == expected
    assert drawn.lengths_q == [5, 5, 0, 9, 1]


def test_work_is_counted_as_the_command_counts_it():
    """Two products a visible pair forward, five backward, each over its own head dim; a suite's problems are those of any filter."""
    drawn = problem("--seqlens-q 5,9 --heads-q 2 --head-dim 192 --head-dim-v 128")
    assert drawn.flops(False) == 2 * (25 + 81) * 2 * (192 + 128)
    assert drawn.flops(True) == 2 * (25 + 81) * 2 * (3 * 192 + 2 * 128)


def test_filters_are_several(monkeypatch):
    named = [problem(f"--name {name} --seqlens-q 5") for name in ("dense-d64", "dense-d128", "short")]
    monkeypatch.setattr(command, "suite", lambda name: named)
    for text, expected in (("", 3), ("d128", 1), ("d64,short", 2)):
        monkeypatch.setattr(sys, "argv", ["compare", "--suite", "bench", "--filter", text])
        assert len(command.arguments()[1]) == expected


@pytest.mark.parametrize(
    "flags, sentence",
    [
        ("--seqlens-q 5 --filter none", "no problem's name has none"),
        ("--seqlens-q 5,z", "'z' is no length"),
        ("--seqlens-q 5 --window 3", "'3' is not L,R"),
        ("--seqlens-q 5 --window -3,1", "'-3,1' is not L,R"),
        ("--seqlens-q 5,6 --seqlens-k 5", "seqlens-k: has 1 lengths"),
        ("--seqlens-q 5 --peers varflash,fa5", "fa5 is not one of"),
        ("--seqlens-q 5 --html /nowhere/page.html", "/nowhere/page.html: there is no such folder"),
    ],
)
def test_wrong_commands_are_said_to_be_wrong_before_any_work(flags, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare", *flags.replace("--window -3,1", "--window=-3,1").split()])
    with pytest.raises(SystemExit) as stop:
        command.arguments()
    assert stop.value.code == 2 and sentence in capsys.readouterr().err


def test_exact_values_are_those_of_the_reference():
    drawn = problem(
        "--seqlens-q 5,9 --seqlens-k 6,8 --heads-q 4 --heads-k 2 --head-dim 16 --head-dim-v 24 --softcap 3 --window 4,2 --dtype fp32"
    )
    q, k, v, dout = (t.double() for t in drawn.tensors("cpu"))
    cu_q, cu_k = drawn.cumulative("cpu")

    def attention(*t):
        return reference.attention(*t, cu_q=cu_q, cu_k=cu_k, window_size=drawn.window, softcap=3.0)

    o, _, *grads = reference.run(attention, reference.leaves((q, k, v), torch.float64), dout)
    found = measure.errors(drawn, (q, k, v, dout), {"reference": (o, *grads), "off": (o + 1, *grads)})
    assert all(error["rms"] < 1e-12 for error in found["reference"].values())
    assert found["off"]["o"]["max"] == pytest.approx(1.0)


def test_whole_run(tmp_path, monkeypatch, capsys):
    flags = (
        "--name a<b --seqlens-q 16x2 --heads-q 2 --head-dim 32 --dtype fp32 --causal --backward --device cpu --duration 0.005 --rounds 2"
    )
    files = ["--json", str(tmp_path / "run.json"), "--html", str(tmp_path / "run.html")]
    monkeypatch.setattr(sys, "argv", ["compare", *shlex.split(flags), *files])
    assert command.main() == 0
    run = json.loads((tmp_path / "run.json").read_text())
    assert [record["pass"] for record in run["records"]] == ["forward", "backward"]
    for record in run["records"]:
        assert {"varflash", "sdpa-flash"} <= set(record["peers"])
        assert all(error["rms"] < 1e-5 for peer in record["peers"].values() for error in peer["errors"].values())
    text = (tmp_path / "run.html").read_text()
    assert "a&lt;b" in text and "a<b" not in text and "<script" not in text and "http" not in text
    assert "varflash / sdpa-flash" in capsys.readouterr().out
    assert page.worst_ratios(run["records"])["sdpa-flash"] > 0


@pytest.mark.parametrize("peer", ["flex", "flash-attn-2", "flash-attn-3", "flash-attn-4"])
@pytest.mark.parametrize("mask", ["", "--causal", "--window 3,1", "--window inf,2", "--softcap 3"])
def test_peers_are_asked_for_the_same_problem(peer, mask, monkeypatch):
    """FlexAttention without its compiler; the packages' places are taken by varflash's functions with their arguments."""
    flex_module = pytest.importorskip("torch.nn.attention.flex_attention")
    flex_peer = pytest.importorskip("varflash.compare.flex_peer")
    monkeypatch.setattr(flex_peer, "_compiled", {"attention": flex_module.flex_attention})
    monkeypatch.setattr(peers, "_require", lambda condition, reason: None)
    modules = {"flash_attn": varflash, "flash_attn_interface": fa3, "flash_attn.cute": fa4}
    monkeypatch.setattr(peers, "_import", lambda name: modules.get(name, flex_module))
    drawn = problem(f"--seqlens-q 5,0,9 --seqlens-k 7,3,11 --heads-q 4 --heads-k 2 --head-dim 16 --dtype fp32 {mask}")
    q, k, v, _ = drawn.tensors("cpu")
    torch.testing.assert_close(peers.PEERS[peer](drawn, "cpu")(q, k, v), peers.varflash(drawn, "cpu")(q, k, v), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mask", ["", "--causal", "--window 200,70", "--window inf,2", "--window 0,inf"])
def test_block_mask_is_what_flex_would_make(mask):
    """Blocks without a visible pair, full ones and the rest, and the pairs themselves: ragged ends, empty sequences, keyless queries."""
    flex_module = pytest.importorskip("torch.nn.attention.flex_attention")
    flex_peer = pytest.importorskip("varflash.compare.flex_peer")
    drawn = problem(f"--seqlens-q 300,0,9,384,5 --seqlens-k 520,30,0,256,7 {mask}")
    mine = flex_peer.block_mask(flex_module, drawn, "cpu")
    theirs = flex_module.create_block_mask(mine.mask_mod, None, None, sum(drawn.lengths_q), sum(drawn.lengths_k), device="cpu")
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks"):
        torch.testing.assert_close(getattr(mine, name), getattr(theirs, name), msg=name)
    assert mine.seq_lengths == theirs.seq_lengths
    rows, columns = torch.meshgrid(torch.arange(sum(drawn.lengths_q)), torch.arange(sum(drawn.lengths_k)), indexing="ij")
    assert int(mine.mask_mod(None, None, rows, columns).sum()) == drawn.pairs()


def test_interrupt_keeps_what_was_measured(tmp_path, monkeypatch):
    flags = "--seqlens-q 4 --head-dim 8 --dtype fp32 --peers varflash --device cpu --duration 0.001 --rounds 1"
    files = ["--json", str(tmp_path / "run.json"), "--html", str(tmp_path / "run.html")]
    monkeypatch.setattr(sys, "argv", ["compare", *shlex.split(flags), *files])
    once, drawn = command.run, problem(flags.split(" --peers")[0])
    options, _ = command.arguments()
    monkeypatch.setattr(command, "arguments", lambda: (options, [drawn, None]))

    def run(which, options):
        if which is None:
            raise KeyboardInterrupt
        return once(which, options)

    monkeypatch.setattr(command, "run", run)
    assert command.main() == 130
    assert len(json.loads((tmp_path / "run.json").read_text())["records"]) == 1 and (tmp_path / "run.html").exists()
