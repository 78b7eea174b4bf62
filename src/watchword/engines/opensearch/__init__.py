"""The search index in a cluster of others: OpenSearch 2 and 3, Elasticsearch 7, by their addresses."""

from watchword.engines.opensearch.engine import OpenSearchEngine, open_engine

__all__ = ["OpenSearchEngine", "open_engine"]
