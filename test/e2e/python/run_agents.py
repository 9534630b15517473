"""Runs graphs with the stock langgraph-sdk; prints what it found as JSON.

Called with the address and the key in LANGGRAPH_URL and LANGGRAPH_API_KEY, as any user of the SDK would.
"""

import asyncio
import json
import os
import threading
import time
import uuid

from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_client, get_sync_client

url = os.environ["LANGGRAPH_URL"]
client = get_sync_client(url=url)
found = {}
hello = {"messages": [{"role": "user", "content": "hi"}]}


def failure(call, *given, **named):
    """Return the class and text of the exception that the SDK raises."""
    try:
        call(*given, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def threads() -> None:
    """Threads are made once, found, counted, copied and deleted."""
    thread_id = str(uuid.uuid4())
    client.threads.create(thread_id=thread_id, metadata={"kind": "kept"}, ttl=60)
    again = client.threads.create(thread_id=thread_id, if_exists="do_nothing")
    client.threads.update(thread_id, metadata={"more": 1})
    copy = client.threads.copy(thread_id)
    found["threads"] = {
        "same": again["thread_id"] == thread_id,
        "twice": failure(client.threads.create, thread_id=thread_id),
        "counted": client.threads.count(metadata={"kind": "kept", "more": 1}),
        "found": len(client.threads.search(metadata={"kind": "kept"}, limit=5)),
        "pruned": client.threads.prune([copy["thread_id"]])["pruned_count"],
    }
    client.threads.delete(thread_id)
    found["threads"]["gone"] = failure(client.threads.get, thread_id)


def questions() -> None:
    """A run stops for a question and goes on with its answer; state and history tell."""
    thread_id = client.threads.create(metadata={"from": "python"})["thread_id"]
    streamed = list(client.runs.stream(thread_id, "ask", input={"question": "Go?"}, stream_mode=["updates", "values"]))
    found["events"] = [part.event for part in streamed]
    found["asked"] = [part.data["__interrupt__"][0]["value"] for part in streamed if "__interrupt__" in (part.data or {})]
    found["next"] = client.threads.get_state(thread_id)["next"]
    found["thread"] = client.threads.get(thread_id)["status"]
    found["answered"] = client.runs.wait(thread_id, "ask", command={"resume": "yes"})["result"]
    history = client.threads.get_history(thread_id, limit=10)
    found["history"] = [(state["next"] or [None])[0] for state in history]
    found["older"] = len(client.threads.get_history(thread_id, limit=10, before=history[1]["checkpoint"]))
    client.threads.update_state(thread_id, {"result": "changed"}, as_node="finish")
    found["changed"] = client.threads.get_state(thread_id)["values"]["result"]
    selected = client.threads.get_state(thread_id, select=["values.result", "next"])
    [latest] = client.threads.get_history(thread_id, limit=1, select=["values.result", "next"])
    found["selected"] = [selected, latest]
    client.runs.wait(thread_id, "ask", input=None, checkpoint_id=history[3]["checkpoint"]["checkpoint_id"])
    found["forked"] = client.threads.get_state(thread_id)["next"]


def runs() -> None:
    """Runs without a thread, in each mode, and what they failed with."""

    def kinds(graph, mode, given=None, **more):
        parts = client.runs.stream(None, graph, input=given or {}, stream_mode=mode, **more)
        return sorted({part.event.split(":")[0] for part in parts})

    found["modes"] = {
        "subgraphs": kinds("parent", ["updates", "custom"], stream_subgraphs=True),
        "messages": kinds("chat", "messages-tuple", hello),
        "debug": kinds("parent", ["debug", "tasks", "checkpoints"]),
        "events": kinds("burst", "events", {"n": 1}),
    }
    found["stateless"] = client.runs.wait(None, "echo", input=hello)["messages"][-1]["content"]
    found["batch"] = len(client.runs.create_batch([{"assistant_id": "echo", "input": hello}] * 2))
    found["failed"] = failure(client.runs.wait, None, "misbehave", input={"how": "fail"})
    found["unknown"] = failure(client.runs.wait, None, "nowhere", input={})


def assistants() -> None:
    """Assistants have versions, schemas, also those out of types, and a drawing."""
    made = client.assistants.create("typed", name="of python", metadata={"from": "python"}, context={"tone": "dry"})
    assistant_id = made["assistant_id"]
    client.assistants.update(assistant_id, name="renamed")
    client.assistants.set_latest(assistant_id, 2)
    for _ in range(600):
        typed = client.assistants.get_schemas("ask")
        if typed["state_schema"] is not None:
            break
        time.sleep(0.1)
    found["assistants"] = {
        "versions": [each["version"] for each in client.assistants.get_versions(assistant_id)],
        "found": [each["name"] for each in client.assistants.search(metadata={"from": "python"})],
        "counted": client.assistants.count(metadata={"from": "python"}),
        "joke": client.runs.wait(None, assistant_id, input={"topic": "rain"})["joke"],
        "schema": sorted(client.assistants.get_schemas(assistant_id)["input_schema"]["properties"]),
        "typed": typed["state_schema"] and sorted(typed["state_schema"]["properties"]),
        "drawn": sorted(node["id"] for node in client.assistants.get_graph(assistant_id)["nodes"]),
        "subgraphs": list(client.assistants.get_subgraphs("parent", recurse=True)),
    }
    client.assistants.delete(assistant_id)
    found["assistants"]["gone"] = failure(client.assistants.get, assistant_id)


def crons_and_store() -> None:
    """Crons are kept with their thread; items in namespaces."""
    thread_id = client.threads.create()["thread_id"]
    cron_id = client.crons.create_for_thread(thread_id, "echo", schedule="0 0 1 1 *", input=hello)["cron_id"]
    counted = client.crons.count(thread_id=thread_id)
    changed = client.crons.update(cron_id, schedule="0 0 2 1 *", enabled=False)
    client.crons.delete(cron_id)
    found["crons"] = [counted, changed["schedule"], changed["enabled"], client.crons.search(thread_id=thread_id)]
    found["schedule"] = failure(client.crons.create, "echo", schedule="soon")
    client.store.put_item(["python", "ann"], "likes", {"food": "soup"})
    found["items"] = [
        client.store.get_item(["python", "ann"], "likes")["value"],
        len(client.store.search_items(["python"], filter={"food": "soup"})["items"]),
        client.store.list_namespaces(prefix=["python"])["namespaces"],
    ]
    client.store.delete_item(["python", "ann"], "likes")
    found["items"].append(client.store.get_item(["python", "ann"], "likes"))


def protocol() -> None:
    """The newer event protocol: a thread is followed over a question and its answer."""
    with client.threads.stream(assistant_id="ask") as thread:
        thread.run.start(input={"question": "Go?"})
        for _ in thread.values:
            pass
        found["protocol"] = [thread.interrupted, [each["value"] for each in thread.interrupts]]
        thread.run.respond("yes")
        found["protocol"].append(thread.output["result"])


def ends() -> None:
    """Iterators end when a run is cancelled, and at a breakpoint, where nothing is asked."""
    with client.threads.stream(assistant_id="steps") as thread:
        run = thread.run.start(input={"steps": 1, "pauseMs": 60_000})
        seen = []
        for values in thread.values:
            if not seen:
                threading.Thread(target=client.runs.cancel, args=(thread.thread_id, run["run_id"])).start()
            seen.append(values)
        found["ended"] = [thread.interrupted, thread.output["steps"]]
    with client.threads.stream(assistant_id="pausing") as thread:
        thread.run.start(input={"question": "Go?"})
        found["paused"] = [list(thread.values)[-1], thread.interrupted, thread.output]


def remote_graph() -> None:
    """A remote graph takes the answer to its question as a new input."""
    graph = RemoteGraph("ask", url=url, api_key=os.environ["LANGGRAPH_API_KEY"])
    config = {"configurable": {"thread_id": client.threads.create()["thread_id"]}}
    with graph.stream_events({"question": "Go?"}, config, version="v3") as run:
        for _ in run.values:
            pass
        found["remote"] = [run.interrupted]
    with graph.stream_events(Command(resume="yes"), config, version="v3") as run:
        found["remote"].append(run.output["result"])
    with graph.stream_events({"question": "Again?"}, config, version="v3") as run:
        for _ in run.values:
            pass
    found["remote"].append(client.threads.get_state(config["configurable"]["thread_id"])["next"])


async def beside() -> None:
    """Joins a resumable run again behind what was seen, as a page that is loaded anew does; cancels one run and many."""
    client = get_client(url=url)
    thread_id = (await client.threads.create())["thread_id"]
    run = await client.runs.create(
        thread_id, "burst", input={"n": 20, "pauseMs": 20}, stream_mode="custom", stream_resumable=True
    )
    seen, last = [], "-1"
    async for part in client.runs.join_stream(thread_id, run["run_id"], last_event_id=last):
        last = part.id
        if part.event == "custom":
            seen.append(part.data["i"])
        if len(seen) == 5:
            break
    async for part in client.runs.join_stream(thread_id, run["run_id"], last_event_id=last):
        seen.append(part.data["i"])
    found["seen"] = seen
    found["joined"] = (await client.runs.join(thread_id, run["run_id"]))["done"]
    slow = {"input": {"steps": 1, "pauseMs": 60_000}}
    first, second = [await client.runs.create(thread_id, "steps", **slow) for _ in range(2)]
    await client.runs.cancel(thread_id, first["run_id"], wait=True)
    await client.runs.cancel_many(thread_id=thread_id, run_ids=[second["run_id"]])
    await client.runs.join(thread_id, second["run_id"])
    found["cancelled"] = [(await client.runs.get(thread_id, each["run_id"]))["status"] for each in (first, second)]
    await client.runs.delete(thread_id, first["run_id"])
    found["listed"] = len(await client.runs.list(thread_id))


threads()
questions()
runs()
assistants()
crons_and_store()
protocol()
ends()
remote_graph()
asyncio.run(beside())
print(json.dumps(found))
