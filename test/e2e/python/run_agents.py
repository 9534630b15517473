"""Runs graphs with the stock langgraph-sdk; prints what it found as JSON.

Called with the address and the key in LANGGRAPH_URL and LANGGRAPH_API_KEY, as any user of the SDK would.
"""

import asyncio
import json
import os

from langgraph_sdk import get_client, get_sync_client

url = os.environ["LANGGRAPH_URL"]
client = get_sync_client(url=url)
found = {}

thread_id = client.threads.create(metadata={"from": "python"})["thread_id"]
streamed = list(client.runs.stream(thread_id, "ask", input={"question": "Go?"}, stream_mode=["updates", "values"]))
found["events"] = [part.event for part in streamed]
found["asked"] = [part.data["__interrupt__"][0]["value"] for part in streamed if "__interrupt__" in (part.data or {})]
state = client.threads.get_state(thread_id)
found["next"] = state["next"]
found["thread"] = client.threads.get(thread_id)["status"]
found["answered"] = client.runs.wait(thread_id, "ask", command={"resume": "yes"})["result"]
found["history"] = [(state["next"] or [None])[0] for state in client.threads.get_history(thread_id, limit=10)]
client.threads.update_state(thread_id, {"result": "changed"}, as_node="finish")
found["changed"] = client.threads.get_state(thread_id)["values"]["result"]
found["threads"] = len(client.threads.search(metadata={"from": "python"}))
found["assistants"] = [each["graph_id"] for each in client.assistants.search(graph_id="ask")]
found["stateless"] = client.runs.wait(None, "echo", input={"messages": [{"role": "user", "content": "hi"}]})["messages"][-1]["content"]
try:
    client.runs.wait(None, "misbehave", input={"how": "fail"})
except Exception as error:  # the SDK raises what the run failed with
    found["failed"] = str(error)


async def beside() -> None:
    """Joins a resumable run again behind what was seen, as a page that is loaded anew does."""
    client = get_client(url=url)
    thread = await client.threads.create()
    run = await client.runs.create(
        thread["thread_id"], "burst", input={"n": 20, "pauseMs": 20}, stream_mode="custom", stream_resumable=True
    )
    seen, last = [], "-1"
    async for part in client.runs.join_stream(thread["thread_id"], run["run_id"], last_event_id=last):
        last = part.id
        if part.event == "custom":
            seen.append(part.data["i"])
        if len(seen) == 5:
            break
    async for part in client.runs.join_stream(thread["thread_id"], run["run_id"], last_event_id=last):
        seen.append(part.data["i"])
    found["seen"] = seen
    slow = await client.runs.create(thread["thread_id"], "steps", input={"steps": 1, "pauseMs": 60_000})
    await client.runs.cancel(thread["thread_id"], slow["run_id"], wait=True)
    found["cancelled"] = (await client.runs.get(thread["thread_id"], slow["run_id"]))["status"]


asyncio.run(beside())
print(json.dumps(found))
