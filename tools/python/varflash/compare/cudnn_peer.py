"""The cuDNN front end (package nvidia-cudnn-frontend) as a peer: one graph for each pass, operands packed by ragged offsets."""

import torch

# uids of the tensors of both graphs.
_NAMES = ("q", "k", "v", "o", "stats", "dout", "dq", "dk", "dv", "lengths_q", "lengths_k", "ragged_q", "ragged_k", "ragged_v", "ragged_o")
_UID = {name: number for number, name in enumerate(_NAMES, 1)}


class Graphs:
    """Forward and backward of one problem. `build` needs a GPU, what comes before it does not."""

    def __init__(self, cudnn, problem, device):
        self.cudnn, self.problem = cudnn, problem
        flags = problem.flags
        cu_q, cu_k = problem.cumulative(device)
        self.batch, self.rows_q, self.rows_k = len(problem.lengths_q), max(problem.lengths_q), max(problem.lengths_k)
        self.sides = {  # heads, dim, longest, ragged offsets
            "q": (flags.heads_q, flags.head_dim, self.rows_q, "ragged_q"),
            "k": (flags.heads_k, flags.head_dim, self.rows_k, "ragged_k"),
            "v": (flags.heads_k, flags.head_dim_v, self.rows_k, "ragged_v"),
            "o": (flags.heads_q, flags.head_dim_v, self.rows_q, "ragged_o"),
        }
        offsets = {"ragged_q": cu_q, "ragged_k": cu_k, "ragged_v": cu_k, "ragged_o": cu_q}
        self.constants = {name: offsets[name] * heads * dim for heads, dim, _, name in self.sides.values()}
        self.constants.update(lengths_q=cu_q.diff(), lengths_k=cu_k.diff())

    def _graph(self):
        types = self.cudnn.data_type
        kind = types.BFLOAT16 if self.problem.flags.dtype == "bf16" else types.HALF
        return self.cudnn.pygraph(io_data_type=kind, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT)

    def _small(self, graph, name):
        count = self.batch + name.startswith("ragged")
        shape = dict(dim=(count, 1, 1, 1), stride=(1, 1, 1, 1))
        return graph.tensor(name=name, data_type=self.cudnn.data_type.INT32, uid=_UID[name], **shape)

    def _place(self, tensor, like, ragged):
        heads, dim, rows, name = self.sides[like]
        tensor.set_dim((self.batch, heads, rows, dim)).set_stride((rows * heads * dim, dim, heads * dim, 1))
        return tensor.set_ragged_offset(ragged[name])

    def _input(self, graph, name, like, ragged):
        heads, dim, rows, _ = self.sides[like]
        shape = dict(dim=(self.batch, heads, rows, dim), stride=(rows * heads * dim, dim, heads * dim, 1))
        return self._place(graph.tensor(name=name, uid=_UID[name], **shape), like, ragged)

    def _stats(self):
        heads = self.problem.flags.heads_q
        return dict(dim=(self.batch, heads, self.rows_q, 1), stride=(heads * self.rows_q, self.rows_q, 1, 1))

    def _options(self, graph):
        lengths = dict(seq_len_q=self._small(graph, "lengths_q"), seq_len_kv=self._small(graph, "lengths_k"))
        return dict(attn_scale=self.problem.scale, use_padding_mask=True, use_causal_mask=self.problem.causal, **lengths)

    def forward(self):
        graph = self._graph()
        ragged = {name: self._small(graph, name) for *_, name in self.sides.values()}
        q, k, v = (self._input(graph, name, name, ragged) for name in "qkv")
        o, stats = graph.sdpa(name="forward", q=q, k=k, v=v, is_inference=False, **self._options(graph))
        self._place(o.set_output(True).set_uid(_UID["o"]), "o", ragged)
        shape = self._stats()
        stats.set_output(True).set_uid(_UID["stats"]).set_data_type(self.cudnn.data_type.FLOAT)
        stats.set_dim(shape["dim"]).set_stride(shape["stride"])
        graph.validate()
        return graph

    def backward(self):
        graph = self._graph()
        ragged = {name: self._small(graph, name) for *_, name in self.sides.values()}
        q, k, v, o, dout = (self._input(graph, *pair, ragged) for pair in ("qq", "kk", "vv", "oo", ("dout", "o")))
        stats = graph.tensor(name="stats", uid=_UID["stats"], data_type=self.cudnn.data_type.FLOAT, **self._stats())
        totals = dict(max_total_seq_len_q=sum(self.problem.lengths_q), max_total_seq_len_kv=sum(self.problem.lengths_k))
        grads = graph.sdpa_backward(name="backward", q=q, k=k, v=v, o=o, dO=dout, stats=stats, **totals, **self._options(graph))
        for grad, name, like in zip(grads, ("dq", "dk", "dv"), "qkv"):
            self._place(grad.set_output(True).set_uid(_UID[name]), like, ragged)
        graph.validate()
        return graph

    def build(self, graph):
        """A function of {name: tensor} that runs the graph."""
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A, self.cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device="cuda")
        handle = self.cudnn.create_handle()

        def run(tensors):
            self.cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute({_UID[name]: t for name, t in {**tensors, **self.constants}.items()}, workspace, handle=handle)

        return run


def attention(cudnn, problem, device):
    graphs = Graphs(cudnn, problem, device)
    forward, backward = graphs.build(graphs.forward()), None

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            o = q.new_empty(*q.shape[:2], v.shape[-1])
            stats = torch.empty(graphs._stats()["dim"], dtype=torch.float32, device=q.device)
            forward(dict(q=q, k=k, v=v, o=o, stats=stats))
            ctx.save_for_backward(q, k, v, o, stats)
            return o

        @staticmethod
        def backward(ctx, dout):
            nonlocal backward
            backward = backward or graphs.build(graphs.backward())
            q, k, v, o, stats = ctx.saved_tensors
            grads = dict(dq=torch.empty_like(q), dk=torch.empty_like(k), dv=torch.empty_like(v))
            backward(dict(q=q, k=k, v=v, o=o, stats=stats, dout=dout, **grads))
            return tuple(grads.values())

    return Attention.apply
