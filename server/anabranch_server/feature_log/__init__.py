"""The feature log: ranked requests as files of training data."""

from anabranch_server.feature_log.log import FeatureLog
from anabranch_server.feature_log.results import LogObserver, LogResult

__all__ = ["FeatureLog", "LogObserver", "LogResult"]
