#!/usr/bin/python3
"""A second implementation to hold larder against: deepseek_v3 in numpy, float64, straight from the files.

usage: reference.py perplexity MODEL_DIR TEXT_FILE   each window is BOS and the text's next 511 tokens; all are scored
       reference.py cases MODEL_DIR OUT_DIR TEXT     writes cases.json and expected.safetensors
       reference.py chat MODEL_DIR QUESTION...       greedy answers, one question after the other

It shares nothing with model.py but the published formulas: single experts, complex rotation, tensors by name.
"""
import json
import struct
import sys

import numpy as np

import bpe

DTYPES = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "F64": np.dtype("<f8")}


def read_safetensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            raw = np.frombuffer(data[slice(*t["data_offsets"])], DTYPES[t["dtype"]])
            if t["dtype"] == "BF16":
                raw = (raw.astype(np.uint32) << 16).view(np.float32)
            out[name] = raw.reshape(t["shape"]).astype(np.float64)
    return out


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, array)}; BF16 as uint16 that holds the upper halves."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, a) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


class Reference:
    def __init__(self, folder):
        with open(folder + "/config.json", encoding="utf-8") as f:
            self.c = json.load(f)
        self.w = read_safetensors(folder + "/model.safetensors")
        self.tokenizer = bpe.load(folder + "/tokenizer.json")

    def rotate(self, x):
        """x: (tokens, ..., rope dims); each pair is a complex number that its position turns."""
        dims = x.shape[-1]
        angle = np.arange(len(x))[:, None] / self.c["rope_theta"] ** (np.arange(0, dims, 2) / dims)
        turn = np.exp(1j * angle).reshape((len(x),) + (1,) * (x.ndim - 2) + (dims // 2,))
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack((z.real, z.imag), axis=-1).reshape(x.shape)

    def attend(self, x, prefix):
        """Absorbed: the latent itself is key and value, as a cache would hold it."""
        c, w, t = self.c, lambda n: self.w[f"{prefix}.{n}.weight"], len(x)
        heads, nope, rope, value = (c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                                    c["v_head_dim"])
        q = (norm(x @ w("q_a_proj").T, w("q_a_layernorm"), 1e-6) @ w("q_b_proj").T).reshape(t, heads, nope + rope)
        compressed = x @ w("kv_a_proj_with_mqa").T
        latent = norm(compressed[:, :c["kv_lora_rank"]], w("kv_a_layernorm"), 1e-6)
        k_rope, q_rope = self.rotate(compressed[:, c["kv_lora_rank"]:]), self.rotate(q[..., nope:])
        kv_b = w("kv_b_proj").reshape(heads, nope + value, c["kv_lora_rank"])
        out = np.empty((t, heads, value))
        for h in range(heads):
            scores = q[:, h, :nope] @ kv_b[h, :nope] @ latent.T + q_rope[:, h] @ k_rope.T
            scores *= (nope + rope) ** -0.5
            scores[np.triu_indices(t, 1)] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ latent @ kv_b[h, nope:].T
        return out.reshape(t, -1) @ w("o_proj").T

    def mlp(self, x, prefix):
        w = lambda n: self.w[f"{prefix}.{n}_proj.weight"]  # noqa: E731
        return (silu(x @ w("gate").T) * (x @ w("up").T)) @ w("down").T

    def experts(self, x, prefix):
        """One token after the other, its experts one after the other."""
        c, out = self.c, self.mlp(x, prefix + ".shared_experts")
        scores = 1 / (1 + np.exp(-(x @ self.w[prefix + ".gate.weight"].T)))
        biased = scores + self.w[prefix + ".gate.e_score_correction_bias"]
        size = c["n_routed_experts"] // c["n_group"]
        for i in range(len(x)):
            by_group = biased[i].reshape(-1, size)
            best = np.argsort(-np.sort(by_group, -1)[:, -2:].sum(-1), kind="stable")[:c["topk_group"]]
            allowed = np.full_like(by_group, -np.inf)
            allowed[best] = by_group[best]
            chosen = np.argsort(-allowed.ravel(), kind="stable")[:c["num_experts_per_tok"]]
            weights = scores[i, chosen] / scores[i, chosen].sum() * c["routed_scaling_factor"]
            for e, share in zip(chosen, weights):
                out[i] += share * self.mlp(x[i:i + 1], f"{prefix}.experts.{e}")[0]
        return out

    def logits(self, ids):
        """(tokens, vocab)."""
        c, eps = self.c, self.c["rms_norm_eps"]
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}"
            x = x + self.attend(norm(x, self.w[p + ".input_layernorm.weight"], eps), p + ".self_attn")
            h = norm(x, self.w[p + ".post_attention_layernorm.weight"], eps)
            x = x + (self.mlp if i < c["first_k_dense_replace"] else self.experts)(h, p + ".mlp")
        return norm(x, self.w["model.norm.weight"], eps) @ self.w["lm_head.weight"].T

    def perplexity(self, text, windows=None):
        """(perplexity, tokens scored) of the text, or of its first windows."""
        ids, window = self.tokenizer.encode(text), self.c["max_position_embeddings"] - 1
        ids = ids[:windows * window] if windows else ids
        lost = 0.0
        for i in range(0, len(ids), window):
            part = [bpe.BOS] + ids[i:i + window]
            z = self.logits(part[:-1])
            z -= z.max(-1, keepdims=True)
            lost += (np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), part[1:]]).sum()
        return float(np.exp(lost / len(ids))), len(ids)

    def greedy(self, ids, most):
        """The ids that follow, until EOS, and the margin of each over the second best."""
        out, margins = [], []
        while len(out) < most and (not out or out[-1] != bpe.EOS):
            z = self.logits(ids + out)[-1]
            second, first = np.sort(z)[-2:]
            out.append(int(z.argmax()))
            margins.append(round(float(first - second), 4))
        return out, margins


def write_cases(reference, folder, text):
    """Logits at a few positions of held-out text and of a chat, with the texts; and a greedy answer."""
    encode, decode = reference.tokenizer.encode, reference.tokenizer.decode
    chat = reference.tokenizer.chat(("You explain words.", "What is a kitten?", "Young domestic cat."))
    question = chat[:-1 - len(encode("Young domestic cat."))]
    cases, tensors = [], {}

    def add(name, ids, positions, **more):
        cases.append({"name": name, "ids": ids, "positions": positions, **more})
        tensors[name + ".logits"] = ("F32", reference.logits(ids)[positions].astype("<f4"))

    for tokens in (1, 64, 300, 500):
        part = decode(encode(text[2000:6000])[:tokens - 1])
        ids = [bpe.BOS] + encode(part)
        add(f"text{tokens}", ids, sorted({0, len(ids) // 2, len(ids) - 1}), text=part)
    add("chat", chat, [len(question) - 1, len(chat) - 1])
    answer, margins = reference.greedy(question, 40)
    cases.append({"name": "greedy", "ids": question, "continuation": answer, "margin": margins})
    write_safetensors(folder + "/expected.safetensors", tensors)
    measured = [reference.perplexity(text, windows) for windows in (1, 4, None)]
    measured.append(reference.perplexity(cases[3]["text"]))
    with open(folder + "/cases.json", "w", encoding="utf-8") as f:
        json.dump({"reference": "tests/train/reference.py, numpy, float64, weights as stored",
                   "perplexity": [{"tokens": n, "value": round(value, 4)} for value, n in measured],
                   "cases": cases}, f)
        f.write("\n")


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("perplexity", "cases", "chat"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    reference = Reference(sys.argv[2])
    if sys.argv[1] == "chat":
        turns = [""]
        for question in sys.argv[3:]:
            ids = reference.tokenizer.chat(turns) + [bpe.USER] + reference.tokenizer.encode(question) + [bpe.ASSISTANT]
            answer = reference.tokenizer.decode([i for i in reference.greedy(ids, 60)[0] if i != bpe.EOS])
            print(f"> {question}\n{answer}")
            turns += [question, answer]
        return 0
    with open(sys.argv[-1], encoding="utf-8") as f:
        text = f.read()
    if sys.argv[1] == "cases":
        write_cases(reference, sys.argv[3], text)
    else:
        print("perplexity %.3f on %d tokens" % reference.perplexity(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
