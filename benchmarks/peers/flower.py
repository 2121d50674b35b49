"""Flower on its simulation engine (Ray), two clients at a time.

Local training is the user's in Flower; here it is the naive loop, as in its tutorials. Data are
made once in each worker and kept.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "PYTHONPATH": str(Path(__file__).parent),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from with_torch import Steps, client, dead, model, train
from work import CLIENTS, Order, Watch, order


def client_app(asked: Order) -> ClientApp:
    """A client: model in, plain training, model and number of steps out."""
    app, work = ClientApp(), asked.work

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(asked.threads)
        local, steps = model(work), Steps()
        local.load_state_dict(message.content["arrays"].to_torch_state_dict())
        inputs, targets = client(work.name, int(context.node_config["partition-id"]))
        train(local, inputs, targets, work.epochs)
        answer = {
            "arrays": ArrayRecord(local.state_dict()),
            "metrics": MetricRecord({"num-examples": len(targets), "steps": steps.made}),
        }
        steps.stop()
        return Message(content=RecordDict(answer), reply_to=message)

    return app


def server_app(asked: Order, watch: Watch) -> ServerApp:
    """FedAvg over all clients, without evaluation."""
    app, steps = ServerApp(), [0]

    def total(answers: list[RecordDict], _: str) -> MetricRecord:
        steps[0] += sum(int(answer["metrics"]["steps"]) for answer in answers)
        return MetricRecord({"steps": steps[0]})

    def end_of_round(t: int, arrays: ArrayRecord) -> None:
        if t > 0:
            weights = arrays.to_torch_state_dict()["0.weight"]
            watch.lap(steps[0], dead(asked.work, weights))

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=CLIENTS,
            min_available_nodes=CLIENTS,
            train_metrics_aggr_fn=total,
        )
        strategy.start(
            grid,
            ArrayRecord(model(asked.work).state_dict()),
            num_rounds=1 + asked.rounds,
            evaluate_fn=end_of_round,
        )

    return app


def main() -> None:
    asked = order(__doc__, ("1 thread in 2 actors",))
    watch = Watch("Flower", version("flwr"), asked)
    run_simulation(
        server_app(asked, watch),
        client_app(asked),
        num_supernodes=CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "include_dashboard": False},
        },
    )
    watch.report(ray=version("ray"))


if __name__ == "__main__":
    main()
