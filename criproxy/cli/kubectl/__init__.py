"""``kubectl criproxy``: the queries of `criproxy`, for any node of a cluster, on a machine that only has kubectl."""
