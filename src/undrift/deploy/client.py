"""The ClientApp of a deployment: Flower's messages to and from a node."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.deploy.node import Load, Node
from undrift.system.extras import require

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

KINDS = {
    "query": "hello",
    "train": "train",
    "train.survey": "survey",
    "evaluate": "score",
}
"""Flower's type of a message → the question in it."""


def client_app(load: Load) -> ClientApp:
    """The ClientApp whose samples are those that `load(node_config)` returns: inputs and targets.

    Code of your own that the experiment names is looked for beside the file of `load`.
    """
    require("flwr", "flower", "a deployment")
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app, code = ClientApp(), Path(inspect.getfile(load)).parent

    def answer(message: Message, context: Context) -> Message:
        node = Node(load, context.node_config, code)
        kind = KINDS[message.metadata.message_type]
        return Message(node.answer(kind, message.content), reply_to=message)

    app.query()(answer)
    app.train()(answer)
    app.train("survey")(answer)
    app.evaluate()(answer)
    return app
