"""The server's words in those of the command line: who typed an option is told of that, not of a GraphQL field."""

import re

import click

# Fields whose option has another name; the first that the command has is meant.
_NAMES = {
    "actorUrn": ("actor", "urn"),
    "actorUrns": ("actors",),
    "allowedNetworks": ("networks",),
    "displayName": ("name",),
    "endTimeMillis": ("older_than", "until"),
    "entityType": ("entity",),
    "forceDeleteByQuery": ("delete",),
    "forceReindex": ("copy",),
    "groupUrn": ("urn",),
    "id": ("id_", "token_id", "task_id"),
    "ownerUrn": ("owner",),
    "query": ("contains", "query"),
    "task": ("task_id",),
    "timeoutSeconds": ("timeout",),
    "tokenId": ("token_id",),
    "userUrns": ("users",),
}
_FIELD = re.compile(r"(?:input\.)?([a-z][A-Za-z]*)((?:\[\d+\])?)(?![\w.])")
_PHRASES = {"See getIndexSizes.": "See: watchword index sizes", "entityType": "entity"}


def in_our_words(sentence: str) -> str:
    """A refusal of the server's, which names the field first."""
    for theirs, ours in _PHRASES.items():
        if not sentence.startswith(theirs):
            sentence = re.sub(rf"(?<!\w){re.escape(theirs)}(?!\w)", ours, sentence)
    found = _FIELD.match(sentence)
    option = None if found is None else _option(found[1])
    return sentence if found is None or option is None else option + sentence[found.end() :]


def _option(field: str) -> str | None:
    context = click.get_current_context(silent=True)
    params = {} if context is None else {param.name: param for param in context.command.params}
    snake = re.sub(r"(?<=[a-z])[A-Z]", lambda capital: f"_{capital[0].lower()}", field)
    for name in (*_NAMES.get(field, ()), snake):
        param = params.get(name)
        if isinstance(param, click.Option):
            return max(param.opts, key=len)
        if param is not None:
            return re.sub(r"[\[\].]", "", param.metavar or name.upper())
    return None
