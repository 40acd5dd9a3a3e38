"""The admin port: what operators look at and change, over HTTP."""

from anabranch_server.app.admin_port.door import create_admin_app

__all__ = ["create_admin_app"]
