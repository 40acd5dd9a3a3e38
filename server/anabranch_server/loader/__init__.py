"""The process that finds out whether a version can be served: read, checked, run on few rows.

It is started when there is a version to look at, takes one request at a time, and ends when there
is none. Whatever a version does to it, supervisor and workers go on.
"""
