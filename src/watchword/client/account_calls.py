"""The calls about service accounts, all of which need Manage Service Accounts; methods of both clients."""

from watchword.client.records import ServiceAccountInfo, record, selection
from watchword.client.walks import PAGE_SIZE, Paged, ResultPage, page_of
from watchword.client.wire import ApiRequest, ask, done

_ACCOUNT = selection(ServiceAccountInfo)


def create_service_account(display_name: str, *, description: str | None = None) -> ApiRequest[ServiceAccountInfo]:
    """Make an actor for a program. `create_token` makes tokens for its urn."""
    document = f"""mutation ($input: CreateServiceAccountInput!) {{
      createServiceAccount(input: $input) {{ {_ACCOUNT} }} }}"""
    wanted = {"displayName": display_name, "description": description}
    return ask(document, lambda found: record(ServiceAccountInfo, found), {"input": wanted}, changes=True)


def service_accounts(*, query: str | None = None, page_size: int = PAGE_SIZE) -> Paged[ServiceAccountInfo]:
    """All service accounts, or those with these words in name or urn."""
    document = f"""query ($input: ListServiceAccountsInput) {{
      listServiceAccounts(input: $input) {{ total serviceAccounts {{ {_ACCOUNT} }} }} }}"""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[ServiceAccountInfo]]:
        wanted = {"start": start, "count": count, "query": query}
        return ask(document, lambda found: page_of(ServiceAccountInfo, found, "serviceAccounts"), {"input": wanted})

    return Paged(fetch, lambda account: account.urn, page_size)


def get_service_account(urn: str) -> ApiRequest[ServiceAccountInfo]:
    document = f"query ($urn: String!) {{ getServiceAccount(urn: $urn) {{ {_ACCOUNT} }} }}"
    return ask(document, lambda found: record(ServiceAccountInfo, found), {"urn": urn})


def delete_service_account(urn: str) -> ApiRequest[None]:
    """Delete a service account. Its tokens die in the same moment, and its urn is never used again."""
    document = "mutation ($urn: String!) { deleteServiceAccount(urn: $urn) }"
    return ask(document, done, {"urn": urn}, changes=True)
