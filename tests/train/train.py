#!/usr/bin/python3
"""Trains the small model of tests/models/tiny-v3 on text of Debian packages.

usage: train.py WORK_DIR [--steps N] [--threads N]

Needs Debian 12's python3-torch, python3-numpy, python3-regex, libopenblas0-pthread, and the packages of corpus.py.
WORK_DIR keeps the tokenizer, the tokens and a checkpoint every 100 steps: run again to go on, with fewer steps to end
sooner (the learning rate falls to zero over the last 30 % of the steps). Then export.py writes the model.
"""
import argparse
import json
import os
import sys
import time

# Read when the libraries are loaded: the kernels of this CPU's class, no page faults for big tensors, and no spinning
# at barriers, which on a busy machine costs more than the sums themselves.
SETTINGS = {"OPENBLAS_CORETYPE": "SkylakeX", "OMP_WAIT_POLICY": "passive", "MALLOC_TRIM_THRESHOLD_": "268435456",
            "MALLOC_MMAP_THRESHOLD_": "268435456", "MALLOC_TOP_PAD_": "16777216"}
if __name__ == "__main__" and any(name not in os.environ for name in SETTINGS):
    os.environ.update({**SETTINGS, **os.environ})
    os.execv(sys.executable, [sys.executable] + sys.argv)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import bpe  # noqa: E402
import corpus  # noqa: E402
import model  # noqa: E402

CHATS = 30000
TOKENS_A_STEP = 16 * 256
PEAK_RATE, WARMUP_STEPS, DECAY_SHARE = 4e-3, 60, 0.3
BIAS_STEP = 0.002
# The last fifth of the steps sees whole windows of the context, 512 tokens, not 256, and of these three in eight are
# chats about the most frequent words alone.
LONG_FROM, EVERYDAY_SHARE = 0.8, 3 / 8


def prepare(work):
    """The tokenizer and two streams of tokens: documents and chats shuffled, each begun by BOS, texts ended by EOS; and
    the chats for the end."""
    names = work + "/tokens.npy", work + "/everyday.npy"
    if all(map(os.path.exists, names)):
        return [np.load(name) for name in names]
    data = corpus.load(CHATS)
    texts = ["\n\n".join(d) for d in data["train"]]
    merges = bpe.train(texts + ["\n".join(c) for c in data["chats"][:CHATS // 5]], model.CONFIG["vocab_size"])
    tokenizer = bpe.Tokenizer(merges)
    tokenizer.save(work, model.CONFIG["max_position_embeddings"])
    # Chats lie in the stream by fours, so that the shuffle mixes them with the texts.
    chats = [tokenizer.chat(c) for c in data["chats"]]
    documents = [sum(chats[i:i + 4], []) for i in range(0, len(chats), 4)]
    documents += [[bpe.BOS] + tokenizer.encode(t) + [bpe.EOS] for t in texts]
    order = np.random.default_rng(1).permutation(len(documents))
    tokens = np.concatenate([np.array(documents[i], dtype=np.uint16) for i in order])
    with open(work + "/held_out.txt", "w", encoding="utf-8") as f:
        f.write(data["held_out"])
    everyday = np.array([i for c in data["everyday"] for i in tokenizer.chat(c)], dtype=np.uint16)
    np.save(names[0], tokens)
    np.save(names[1], everyday)
    print(f"{len(tokens)} tokens, {sum(map(len, chats))} of them in chats; {len(everyday)} for the end", flush=True)
    return [tokens, everyday]


def batch(streams, step, steps):
    """(rows, length + 1) of step `step`: windows at random places, the same for the same step."""
    late = step >= LONG_FROM * steps
    length = 512 if late else 256
    rng = np.random.default_rng(1000 + step)
    rows, taken = TOKENS_A_STEP // length, []
    for row in range(rows):
        tokens = streams[1 if late and row < EVERYDAY_SHARE * rows else 0]
        at = rng.integers(0, len(tokens) - length - 1)
        taken.append(tokens[at:at + length + 1])
    return torch.from_numpy(np.stack(taken).astype(np.int64))


def rate(step, steps):
    if step < WARMUP_STEPS:
        return PEAK_RATE * (step + 1) / WARMUP_STEPS
    falling = (1 - DECAY_SHARE) * steps
    return PEAK_RATE if step < falling else max(PEAK_RATE * (steps - step) / (steps - falling), 1e-5)


def train_step(net, optimizer, rows):
    """Loss of the step. The selection bias moves by a fixed amount against each expert's share of the load."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    for moe in net.moe():
        moe.bias += BIAS_STEP * torch.sign(1 / moe.experts_n - moe.load)
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    torch.set_num_threads(args.threads)
    streams = prepare(args.work)
    torch.manual_seed(7)
    net = model.Model()
    print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
                                  lr=PEAK_RATE, betas=(0.9, 0.95))
    saved, step, curve = args.work + "/checkpoint.pt", 0, []
    if os.path.exists(saved):
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        step, curve = state["step"], state["curve"]
    sums, begun = [], time.process_time()
    while step < args.steps:
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps)
        sums.append(train_step(net, optimizer, batch(streams, step, args.steps)))
        step += 1
        if step % 50 == 0 or step == args.steps:
            loads = max(m.load.max().item() * m.experts_n for m in net.moe())
            curve.append((step, round(sum(sums) / len(sums), 4)))
            print(f"step {step} loss {curve[-1][1]} load max {loads:.2f} of the mean, "
                  f"{time.process_time() - begun:.0f} CPU s", flush=True)
            sums = []
        if step % 100 == 0 or step == args.steps:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "curve": curve}
            torch.save(state, saved + ".new")
            os.replace(saved + ".new", saved)
            with open(args.work + "/curve.json", "w", encoding="utf-8") as f:
                json.dump(curve, f)


if __name__ == "__main__":
    main()
