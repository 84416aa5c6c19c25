"""Ratings of several models from judged pairs: Davidson's model, both orders apart."""

from collections.abc import Sequence

from recast_eval.judging.records import VerdictRecord
from recast_eval.stats import Davidson, davidson


def rate(verdicts: Sequence[VerdictRecord], judge: str, axis: str) -> Davidson | None:
    """Rate all models that one judge compared on one axis; None if nothing was scored.

    Each order that came back is a comparison of its own, clustered by prompt, so that the
    advantage of the first slot is estimated and not averaged into the ratings. A judge without
    orders gives one comparison a pair.
    """
    first, second, outcome, prompts = [], [], list[float](), []
    ordered = False
    for v in verdicts:
        if v.judge != judge or v.repeat:
            continue
        seen = [] if v.order_free else [o for o in v.orders if axis in o.verdict]
        for order in seen:
            choice = order.verdict[axis]
            first.append(order.first)
            second.append(order.second)
            outcome.append(0.5 if choice.state == "tie" else float(choice.winner == order.first))
            prompts.append(v.prompt_id)
            ordered = True
        score = v.axes[axis].score_a if axis in v.axes and not seen else None
        if score is not None:
            first.append(v.model_a)
            second.append(v.model_b)
            outcome.append(score)
            prompts.append(v.prompt_id)
    if not outcome:
        return None
    return davidson(first, second, outcome, prompts, order_effect=ordered)
