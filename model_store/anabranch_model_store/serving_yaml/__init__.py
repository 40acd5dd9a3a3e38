"""serving.yaml: how a model is deployed."""

from anabranch_model_store.serving_yaml.choosing import Shadow, Traffic, VersionPolicy
from anabranch_model_store.serving_yaml.cpusets import parse_cpusets
from anabranch_model_store.serving_yaml.deployment import Deltas, Deployment, Warmup
from anabranch_model_store.serving_yaml.execution import (
    AutoBuckets,
    Batching,
    BucketBudget,
    Executors,
    Memory,
    Queue,
)
from anabranch_model_store.serving_yaml.executor_places import executor_places

__all__ = [
    "AutoBuckets",
    "Batching",
    "BucketBudget",
    "Deltas",
    "Deployment",
    "Executors",
    "Memory",
    "Queue",
    "Shadow",
    "Traffic",
    "VersionPolicy",
    "Warmup",
    "executor_places",
    "parse_cpusets",
]
