"""Everything that can be asked of a server: the methods of `Client` and `AsyncClient`, each written once."""

from watchword.client.actors import ActorMethods
from watchword.client.audit import AuditMethods
from watchword.client.operations import OperationMethods
from watchword.client.policies import PolicyMethods
from watchword.client.records import Record, record
from watchword.client.requests import ApiRequest, sends
from watchword.client.retention import RetentionMethods
from watchword.client.tokens import TokenMethods


class ServerInfo(Record):
    """The version of a server and what it can do."""

    version: str
    capabilities: tuple[str, ...]


class Api(TokenMethods, PolicyMethods, ActorMethods, AuditMethods, OperationMethods, RetentionMethods):
    """The methods that both clients share."""

    @sends
    def get_server_info(self) -> ApiRequest[ServerInfo]:
        """Get the server's version and what it can do. Needs no credential."""
        return ApiRequest(lambda answer: record(ServerInfo, answer["watchword"]), "/config", public=True)
