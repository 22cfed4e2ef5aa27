# SPDX-License-Identifier: BSD-3-Clause
"""libxport for Python: put, get and send over UCX, verbs or libfabric.

doc/python.md is the manual.  Rights, statuses and types are those of xport.h, without XPORT_.
"""
from ._common import Event, Message, version
from ._errors import (Access, Again, BadKey, Bounds, Busy, Canceled, Closed, Error, Forked, Invalid, NoMemory, PeerClosed, PeerLost,
                      Refused, StaleKey, Timeout, Truncated)
from ._instance import Instance, open
from ._objects import Endpoint, Key, Listener, Region
from ._operation import Operation
from ._rpc import RPC, Call, Request
from ._xport import lib as _lib

for _name in dir(_lib):
	if _name.startswith("XPORT_"):
		globals()[_name[6:]] = getattr(_lib, _name)
