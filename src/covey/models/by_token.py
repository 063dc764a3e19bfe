"""The recurrence of a GRU and its derivative in torch's operators, token by token: `recurrence.py` says what for.

Inside, models are one dimension c, and time is outermost: a step reads and writes whole pieces of memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

Given = tuple[Tensor, ...]


def unrolled(x: Tensor, weight: Tensor, bias: Tensor) -> Given:
    """(last state [..., b, h]; gates [..., t, b, 2h], candidates, what the state gave to them, states before each token)."""
    lead, (b, t, _), h = weight.shape[:-2], x.shape[-3:], weight.shape[-1]
    by_token = x.reshape(-1, b, t, 3 * h).permute(2, 0, 1, 3)  # [t, c, b, 3h]
    c = by_token.shape[1]
    turned, shift = weight.reshape(c, 3 * h, h).transpose(1, 2), bias.reshape(c, 1, 3 * h)
    states, gates = x.new_empty(t + 1, c, b, h), x.new_empty(t, c, b, 2 * h)
    candidates, given = x.new_empty(t, c, b, h), x.new_empty(t, c, b, 3 * h)
    states[0].zero_()
    into_gates, into_candidate = by_token[..., : 2 * h].unbind(0), by_token[..., 2 * h :].unbind(0)
    to_gates, to_candidate = given[..., : 2 * h].unbind(0), given[..., 2 * h :].unbind(0)
    resets, updates = gates[..., :h].unbind(0), gates[..., h:].unbind(0)
    state, gate, candidate, own = states.unbind(0), gates.unbind(0), candidates.unbind(0), given.unbind(0)
    for i in range(t):
        torch.baddbmm(shift, state[i], turned, out=own[i])
        torch.add(into_gates[i], to_gates[i], out=gate[i]).sigmoid_()
        torch.addcmul(into_candidate[i], resets[i], to_candidate[i], out=candidate[i]).tanh_()
        torch.lerp(candidate[i], state[i], updates[i], out=state[i + 1])
    kept = (gates, candidates, given[..., 2 * h :], states[:-1])
    last = states[-1].clone().reshape(*lead, b, h)
    return last, *(part.transpose(0, 1).reshape(*lead, t, b, part.shape[-1]) for part in kept)


def last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., b, h], by the steps of `unrolled`."""
    lead, (b, t, _), h = weight.shape[:-2], x.shape[-3:], weight.shape[-1]
    by_token = x.reshape(-1, b, t, 3 * h)
    c = len(by_token)
    turned, shift = weight.reshape(c, 3 * h, h).transpose(1, 2), bias.reshape(c, 1, 3 * h)
    state = x.new_zeros(c, b, h)
    for token in by_token.unbind(2):
        given = torch.baddbmm(shift, state, turned)
        gates = torch.add(token[..., : 2 * h], given[..., : 2 * h]).sigmoid_()
        candidate = torch.addcmul(token[..., 2 * h :], gates[..., :h], given[..., 2 * h :]).tanh_()
        state = torch.lerp(candidate, state, gates[..., h:])
    return state.reshape(*lead, b, h)


def derivative(grad: Tensor, weight: Tensor, gates: Tensor, candidates: Tensor, given: Tensor, states: Tensor) -> Given:
    """Gradients at x [..., b, t, 3h], weight [..., 3h, h] and bias [..., 3h]."""
    lead, (b, h) = grad.shape[:-2], grad.shape[-2:]
    t = states.shape[-3]
    gates, candidates, given, states = (
        part.reshape(-1, t, b, part.shape[-1]).transpose(0, 1) for part in (gates, candidates, given, states)
    )  # [t, c, b, .]
    c = gates.shape[1]
    reset, update = gates[..., :h], gates[..., h:]
    through = (1 - update) * (1 - candidates * candidates)  # from the state to what the candidate's tanh reads
    slopes = grad.new_empty(t, c, b, 3, h)  # from the state to what the state before gave
    slopes[..., 0, :] = through * given * reset * (1 - reset)
    slopes[..., 1, :] = (states - candidates) * update * (1 - update)
    slopes[..., 2, :] = through * reset
    backs = grad.new_empty(t + 1, c, b, h)  # gradient at the state before each token, and after all
    backs[t] = grad.reshape(c, b, h)
    at_given = grad.new_empty(t, c, b, 3, h)
    own = weight.reshape(c, 3 * h, h)
    back, held, slope = backs.unbind(0), update.unbind(0), slopes.unbind(0)
    parts, flat = at_given.unbind(0), at_given.flatten(3).unbind(0)
    for i in reversed(range(t)):
        torch.mul(back[i + 1].unsqueeze(2), slope[i], out=parts[i])
        torch.mul(back[i + 1], held[i], out=back[i])
        back[i].baddbmm_(flat[i], own)
    rows = at_given.flatten(3).transpose(0, 1).reshape(c, t * b, 3 * h)
    at_weight = torch.bmm(rows.transpose(1, 2), states.transpose(0, 1).reshape(c, t * b, h))
    at_bias = rows.sum(1)
    torch.mul(backs[1:], through, out=at_given[..., 2, :])  # x meets the candidate behind the reset gate
    at_x = at_given.flatten(3).permute(1, 2, 0, 3)  # [c, b, t, 3h]
    return at_x.reshape(*lead, b, t, 3 * h), at_weight.reshape(*lead, 3 * h, h), at_bias.reshape(*lead, 3 * h)
