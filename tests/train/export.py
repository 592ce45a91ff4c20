#!/usr/bin/python3
"""Writes a checkpoint of train.py as a Hugging Face folder in BF16, and holds it to a second implementation.

usage: export.py WORK_DIR MODEL_DIR
"""
import json
import os
import shutil
import sys

import numpy as np
import torch

import bpe
import model
import reference


def upper_halves(t):
    """BF16 as uint16, rounded to nearest even by torch; the selection bias of the router stays float32."""
    return t.contiguous().to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    work, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    net = model.Model()
    net.load_state_dict(torch.load(work + "/checkpoint.pt")["net"])
    tensors = {name: ("F32", t.numpy()) if name.endswith("bias") else ("BF16", upper_halves(t))
               for name, t in sorted(net.tensors().items())}
    reference.write_safetensors(folder + "/model.safetensors", tensors)
    settings = {"config.json": model.CONFIG,
                "generation_config.json": {"_from_model_config": True, "bos_token_id": bpe.BOS, "do_sample": True,
                                           "eos_token_id": bpe.EOS, "temperature": 0.6, "top_p": 0.95}}
    for name, value in settings.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    bpe.load(work + "/tokenizer.json").save(folder, model.CONFIG["max_position_embeddings"])
    shutil.copy(work + "/held_out.txt", folder)
    with open(work + "/held_out.txt", encoding="utf-8") as f:
        text = f.read()

    # The same weights, rounded, through the training code in float32 and through numpy in float64.
    for p in net.parameters():
        p.data = p.data.to(torch.bfloat16).float()
    second = reference.Reference(folder)
    ids = [bpe.BOS] + second.tokenizer.encode(text)[:200]
    with torch.no_grad():
        ours = net(torch.tensor([ids]))[0].double().numpy()
    theirs = second.logits(ids)
    apart = np.abs(ours - theirs).max() / theirs.std()
    print(f"largest difference of the two implementations: {apart:.2e} of the logits' standard deviation")
    if apart > 2e-3:
        return 1
    reference.write_cases(second, folder, text)
    print("perplexity %.3f on %d tokens" % second.perplexity(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
