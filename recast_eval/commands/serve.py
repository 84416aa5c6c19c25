"""``recast-eval serve``: a scorer in a process, and if need be an environment, of its own."""

from typing import Annotated

import typer


def serve(
    scorer: Annotated[str, typer.Argument(help="Name of a scorer; `recast-eval judges` lists.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8711,
    device: Annotated[str, typer.Option(help="Where the model runs.")] = "cpu",
    weights: Annotated[str | None, typer.Option(help="Folder or hub id of weights.")] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Images a call of the scorer.")] = 64,
    max_waiting: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 64,
) -> None:
    """Answer /score and /health until Ctrl-C."""
    from recast_eval.errors import MissingError
    from recast_eval.scorers import SCORERS

    spec = SCORERS.load(scorer)
    try:
        import uvicorn

        from recast_eval.scorers.server import make_app
    except ImportError as error:
        raise MissingError(
            f"serving needs {error.name}: pip install 'recast-eval[serve]'"
        ) from error
    app = make_app(
        spec.build(device=device, weights=weights), max_batch=max_batch, max_waiting=max_waiting
    )
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)
