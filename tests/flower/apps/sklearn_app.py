"""A Flower app with scikit-learn: logistic regression, its arrays in float64."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

FEATURES, CLASSES = 6, 3


def initial():
    return [np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)]


def load_data(partition_id):
    drawn = np.random.default_rng(partition_id)
    centres = np.random.default_rng(99).normal(size=(CLASSES, FEATURES))
    targets = np.arange(12 + 7 * partition_id) % CLASSES
    return centres[targets] + drawn.normal(size=(len(targets), FEATURES)), targets


def create_model(ndarrays):
    model = LogisticRegression(max_iter=1, warm_start=True, solver="lbfgs")
    model.classes_ = np.arange(CLASSES)
    model.coef_, model.intercept_ = ndarrays
    return model


app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = create_model(msg.content["arrays"].to_numpy_ndarrays())
    inputs, targets = load_data(context.node_config["partition-id"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(inputs, targets)
    metrics = {
        "train_logloss": log_loss(targets, model.predict_proba(inputs)),
        "num-examples": len(inputs),
    }
    content = RecordDict(
        {
            "arrays": ArrayRecord([model.coef_, model.intercept_]),
            "metrics": MetricRecord(metrics),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = create_model(msg.content["arrays"].to_numpy_ndarrays())
    inputs, targets = load_data(context.node_config["partition-id"])
    metrics = {
        "test_logloss": log_loss(targets, model.predict_proba(inputs)),
        "accuracy": model.score(inputs, targets),
        "num-examples": len(inputs),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
