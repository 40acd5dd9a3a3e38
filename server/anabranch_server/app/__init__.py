"""The FastAPI apps: cold routes of the data port, the admin port, the metrics port."""

from anabranch_server.app.admin_port import create_admin_app
from anabranch_server.app.data import create_app
from anabranch_server.app.metrics import create_metrics_app

__all__ = ["create_admin_app", "create_app", "create_metrics_app"]
