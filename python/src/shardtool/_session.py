"""A data set that is open in a child process."""

from __future__ import annotations

import json
import weakref
from typing import Any, Dict, Optional

from . import _protocol as proto
from ._client import Client


class Session:
    """The child of a loader or data set, started at first use. It is not pickled and does not
    survive forks."""

    def __init__(self) -> None:
        self.client: Optional[Client] = None
        #: The body of INFO; empty without a client.
        self.info: Dict[str, Any] = {}
        self._finalizer: Optional[Any] = None

    @property
    def lost(self) -> bool:
        """Whether there was a client that can no longer be used."""
        return self.client is not None and not self.client.alive

    def connect(self, owner: object, request: Dict[str, Any], metrics: str = "") -> Client:
        """Returns the client, with the data set open. The child ends with its owner and with this
        process."""
        if self.client is not None and self.client.alive:
            return self.client
        self.close()
        self.client = Client(metrics)
        self._finalizer = weakref.finalize(owner, self.client.close)
        try:
            self.info = self.client.call(proto.pack_open(json.dumps(request).encode()), proto.INFO, proto.OPEN)
        except BaseException:
            self.close()
            raise
        return self.client

    def facts(self) -> Dict[str, Any]:
        """Returns INFO as users see it."""
        return {name: value for name, value in self.info.items() if name not in ("ranks", "metrics")}

    def close(self) -> None:
        """Ends the child, if there is one."""
        client, self.client, self.info = self.client, None, {}
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if client is not None:
            client.close()
