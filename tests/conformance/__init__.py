"""Runs the recorded contract (`tests/vectors`) against a gateway.

`vectors` is the data, `names` its placeholders. A `session` is one gateway with
its scripted engines (`engine`, `profiles`, `replies`, `grpc_health`); `steps`
takes a vector's steps there with the help of `caller`; `view` writes down what was seen
and `compare` says where that differs from what is expected.
"""
