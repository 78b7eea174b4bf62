"""The calls about service accounts, all of which need Manage Service Accounts; methods of both clients."""

from watchword.client.records import ServiceAccount, record, selection
from watchword.client.walks import PAGE_SIZE, Page, Paged, page_of
from watchword.client.wire import Call, ask, done

_ACCOUNT = selection(ServiceAccount)


def create_service_account(display_name: str, *, description: str | None = None) -> Call[ServiceAccount]:
    """Make an actor for a program. `create_token` makes tokens for its urn."""
    document = f"""mutation ($input: CreateServiceAccountInput!) {{
      createServiceAccount(input: $input) {{ {_ACCOUNT} }} }}"""
    wanted = {"displayName": display_name, "description": description}
    return ask(document, lambda found: record(ServiceAccount, found), {"input": wanted}, changes=True)


def service_accounts(*, query: str | None = None, page_size: int = PAGE_SIZE) -> Paged[ServiceAccount]:
    """All service accounts, or those with these words in name or urn."""
    document = f"""query ($input: ListServiceAccountsInput) {{
      listServiceAccounts(input: $input) {{ total serviceAccounts {{ {_ACCOUNT} }} }} }}"""

    def fetch(start: int, count: int) -> Call[Page[ServiceAccount]]:
        wanted = {"start": start, "count": count, "query": query}
        return ask(document, lambda found: page_of(ServiceAccount, found, "serviceAccounts"), {"input": wanted})

    return Paged(fetch, lambda account: account.urn, page_size)


def get_service_account(urn: str) -> Call[ServiceAccount]:
    document = f"query ($urn: String!) {{ getServiceAccount(urn: $urn) {{ {_ACCOUNT} }} }}"
    return ask(document, lambda found: record(ServiceAccount, found), {"urn": urn})


def delete_service_account(urn: str) -> Call[None]:
    """Delete a service account. Its tokens die in the same moment, and its urn is never used again."""
    document = "mutation ($urn: String!) { deleteServiceAccount(urn: $urn) }"
    return ask(document, done, {"urn": urn}, changes=True)
