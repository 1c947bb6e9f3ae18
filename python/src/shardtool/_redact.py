"""What of an address may be printed."""

from __future__ import annotations

import re

_URL = re.compile(r"""([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s"'<>/?#]*)([^\s"'<>?]*)(?:\?([^\s"'<>]*))?""")
_GENERATION = re.compile(r"@[0-9a-f]{16}$")


def redact(text: str) -> str:
    """Returns a text, such as an address or a message, without the users, passwords and queries of
    the URLs in it: a query may hold a signature. The rule is the one of ``objstore.Redact``."""
    return _URL.sub(_shown, text)


def _shown(url: "re.Match[str]") -> str:
    scheme, host, path, query = url.groups()
    at = host.rfind("@")
    if at >= 0 and not _GENERATION.search(host):
        host = host[at + 1 :]
    if query is None:
        return f"{scheme}{host}{path}"
    # The view or the generation after the query stays, and so does the punctuation of the sentence.
    bare = query.rstrip(".,:;)]")
    after = query[len(bare) :]
    generation = _GENERATION.search(bare)
    if "#" in bare:
        after = bare[bare.index("#") :] + after
    elif generation:
        after = generation.group() + after
    return f"{scheme}{host}{path}{after}"
