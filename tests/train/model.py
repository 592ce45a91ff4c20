"""The deepseek_v3 architecture in PyTorch, readable: latent attention, a router with selection bias, shared expert.

Names of parameters are those of the published checkpoints. Formulas: DeepSeek-V2 and V3 reports (arXiv 2405.04434,
2412.19437). In training every expert sees every token and the ones not chosen get weight 0: the same numbers as
choosing, and with experts this small faster than gathering rows.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "attention_bias": False,
    "bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 192,
    "intermediate_size": 512, "kv_lora_rank": 128, "max_position_embeddings": 512, "moe_intermediate_size": 48,
    "moe_layer_freq": 1, "n_group": 4, "n_routed_experts": 16, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_attention_heads": 4, "num_experts_per_tok": 4, "num_hidden_layers": 5, "num_key_value_heads": 4,
    "num_nextn_predict_layers": 0, "q_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "tie_word_embeddings": False, "topk_group": 2, "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16", "v_head_dim": 32, "vocab_size": 2048,
}


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps))


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    """Neighbouring pairs (x[2i], x[2i+1]) turned by the angle of their position. x: (..., tokens, rope dims)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.nope, self.rope, self.value = (
            c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"])
        self.rank = c["kv_lora_rank"]
        self.q_a_proj = linear(c["hidden_size"], c["q_lora_rank"])
        self.q_a_layernorm = RMSNorm(c["q_lora_rank"], 1e-6)
        self.q_b_proj = linear(c["q_lora_rank"], self.heads * (self.nope + self.rope))
        self.kv_a_proj_with_mqa = linear(c["hidden_size"], self.rank + self.rope)
        self.kv_a_layernorm = RMSNorm(self.rank, 1e-6)
        self.kv_b_proj = linear(self.rank, self.heads * (self.nope + self.value))
        self.o_proj = linear(self.heads * self.value, c["hidden_size"])
        self.scale = (self.nope + self.rope) ** -0.5

    def forward(self, x, cos, sin, mask):
        """x: (batch, tokens, hidden). The key of a head is its part of the latent, then the one rotated key of all."""
        b, t, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(b, t, self.heads, -1).transpose(1, 2)
        q = torch.cat((q[..., :self.nope], rotate(q[..., self.nope:].float(), cos, sin).to(q.dtype)), dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split((self.rank, self.rope), dim=-1)
        k_rope = rotate(k_rope.float(), cos, sin).to(k_rope.dtype)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(b, t, self.heads, -1).transpose(1, 2)
        k = torch.cat((kv[..., :self.nope], k_rope.unsqueeze(1).expand(b, self.heads, t, self.rope)), dim=-1)
        scores = (torch.matmul(q, k.transpose(-1, -2)) * self.scale).float() + mask
        out = torch.matmul(scores.softmax(-1).to(kv.dtype), kv[..., self.nope:])
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.experts_n, self.inner = c, c["n_routed_experts"], c["moe_intermediate_size"]
        hidden = c["hidden_size"]
        self.gate = nn.Parameter(torch.empty(self.experts_n, hidden))
        self.register_buffer("bias", torch.zeros(self.experts_n))
        self.gate_up = nn.Parameter(torch.empty(2, self.experts_n * self.inner, hidden))
        self.down = nn.Parameter(torch.empty(self.experts_n, self.inner, hidden))
        self.shared_experts = MLP(hidden, self.inner * c["n_shared_experts"])
        self.load = None  # share of the last batch's choices by expert, for the bias

    def route(self, x):
        """(tokens, experts) weights, 0 where not chosen. The bias chooses; the weights are of the bare scores."""
        c = self.c
        scores = F.linear(x.float(), self.gate.float()).sigmoid()
        biased = scores.detach() + self.bias
        groups = biased.view(-1, c["n_group"], self.experts_n // c["n_group"])
        best = groups.topk(2, dim=-1)[0].sum(-1).topk(c["topk_group"], dim=-1)[1]
        allowed = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter_(1, best, True)
        biased = groups.masked_fill(~allowed.unsqueeze(-1), float("-inf")).flatten(1)
        chosen = torch.zeros_like(biased).scatter_(1, biased.topk(c["num_experts_per_tok"], dim=-1)[1], 1.0)
        self.load = chosen.sum(0) / chosen.sum()
        weights = scores * chosen
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        with torch.autocast("cpu", enabled=False):
            weights = self.route(flat.float())
        gate, up = F.linear(flat, self.gate_up[0]), F.linear(flat, self.gate_up[1])
        inner = (F.silu(gate) * up).view(-1, self.experts_n, self.inner) * weights.to(up.dtype).unsqueeze(-1)
        out = torch.matmul(inner.flatten(1), self.down.flatten(0, 1))
        return (out + self.shared_experts(flat)).view_as(x)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        dense = index < c["first_k_dense_replace"]
        self.mlp = MLP(c["hidden_size"], c["intermediate_size"]) if dense else MoE(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c=None):
        super().__init__()
        self.c = c = c or CONFIG
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"])
        for name, p in self.named_parameters():
            if p.dim() > 1:
                # What is added to the stream starts small, so that depth does not raise its size.
                into_stream = name.endswith(("o_proj.weight", "down_proj.weight", "mlp.down"))
                nn.init.normal_(p, std=0.03 / (2 * c["num_hidden_layers"]) ** 0.5 if into_stream else 0.03)

    def moe(self):
        return [layer.mlp for layer in self.layers if isinstance(layer.mlp, MoE)]

    def forward(self, ids):
        """ids: (batch, tokens). Logits in float32: (batch, tokens, vocab)."""
        t, dims = ids.shape[1], self.c["qk_rope_head_dim"]
        angles = torch.outer(torch.arange(t).double(),
                             self.c["rope_theta"] ** (-torch.arange(0, dims, 2).double() / dims))
        cos, sin = angles.cos().float(), angles.sin().float()
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x)).float()

    def tensors(self):
        """{name in the published format: tensor}: the stacked experts one by one, the selection bias in float32."""
        out = {}
        for name, p in self.named_parameters():
            head, _, last = name.rpartition(".")
            if head.endswith("mlp") and last == "gate":
                out[f"model.{name}.weight"] = p
            elif head.endswith("mlp") and last in ("gate_up", "down"):
                for e in range(self.c["n_routed_experts"]):
                    rows = slice(e * self.c["moe_intermediate_size"], (e + 1) * self.c["moe_intermediate_size"])
                    if last == "down":
                        out[f"model.{head}.experts.{e}.down_proj.weight"] = p[e].t()
                    else:
                        out[f"model.{head}.experts.{e}.gate_proj.weight"] = p[0, rows]
                        out[f"model.{head}.experts.{e}.up_proj.weight"] = p[1, rows]
            else:
                out[name if head == "lm_head" else "model." + name] = p
        for i, layer in enumerate(self.layers):
            if isinstance(layer.mlp, MoE):
                out[f"model.layers.{i}.mlp.gate.e_score_correction_bias"] = layer.mlp.bias
        return {k: v.detach() for k, v in out.items()}
