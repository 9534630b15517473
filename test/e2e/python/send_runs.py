"""Sends the runs that come as JSON on standard input with the stock langsmith SDK, and waits until it has let go of them.

Called with the address and the key in LANGSMITH_ENDPOINT and LANGSMITH_API_KEY, as any user of the SDK would.
"""

import datetime
import json
import sys

from langsmith import Client

client = Client()
for run in json.load(sys.stdin):
    run["start_time"] = datetime.datetime.fromtimestamp(run["start_time"] / 1000, datetime.timezone.utc)
    client.create_run(**run)
client.flush()
