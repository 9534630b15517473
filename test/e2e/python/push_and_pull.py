"""Prompts, agents and skills, and the asynchronous client of the stock Python SDK. Prints what it found as JSON."""

import asyncio
import json
import uuid

from langchain_core.prompts import ChatPromptTemplate
from langsmith import AsyncClient, Client
from langsmith.schemas import FileEntry
from langsmith.utils import LangSmithNotFoundError

client = Client(disable_prompt_cache=True)


def templates(pulled: ChatPromptTemplate) -> list:
    return [message.prompt.template for message in pulled.messages]


name = f"prompt-{uuid.uuid4().hex}"

prompt = ChatPromptTemplate.from_messages([("system", "Be {tone}."), ("human", "{question}")])
client.push_prompt(name, object=prompt, description="asks", tags=["a"], commit_tags=["first"])
first = client.pull_prompt(f"{name}:first")
client.push_prompt(name, object=ChatPromptTemplate.from_messages([("human", "{question}")]))
latest = client.pull_prompt(name)
commits = [commit.commit_hash for commit in client.list_prompt_commits(name)]
by_hash = client.pull_prompt(f"{name}:{commits[-1]}")
described = client.get_prompt(name)
client.delete_prompt(name)

hub = {}
for kind in ("agent", "skill"):
    operations = (f"push_{kind}", f"pull_{kind}", f"{kind}_exists", f"delete_{kind}")
    push, pull, exists, delete = (getattr(client, each) for each in operations)
    repo = f"{kind}-{uuid.uuid4().hex}"
    push(repo, files={"a.md": FileEntry(content="one"), "b.md": FileEntry(content="two")}, description="d")
    push(repo, files={"a.md": FileEntry(content="new"), "b.md": None})
    found = {path: entry.content for path, entry in pull(repo).files.items()}
    listed = [each.description for each in getattr(client, f"list_{kind}s")().repos if each.repo_handle == repo]
    before = exists(repo)
    delete(repo)
    hub[kind] = [found, listed, before, exists(repo)]


async def eventually(read, is_stored=lambda _: True):
    """Reads until what was accepted is stored."""
    for _ in range(300):
        try:
            found = await read()
            if is_stored(found):
                return found
        except LangSmithNotFoundError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError("not stored within 30 s")


async def use_async_client() -> dict:
    async with AsyncClient() as asynchronous:
        project = f"async-{uuid.uuid4()}"
        await asynchronous.create_project(project)
        run_id = uuid.uuid4()
        await asynchronous.create_run("asynchronous", {"x": 1}, "chain", id=run_id, project_name=project)
        await asynchronous.update_run(run_id, outputs={"y": 2})
        run = await eventually(lambda: asynchronous.read_run(run_id), lambda found: found.outputs == {"y": 2})
        feedback = await asynchronous.create_feedback(run_id, "score", score=1)
        dataset = await asynchronous.create_dataset(project)
        await asynchronous.create_example({"n": 1}, {"square": 1}, dataset_id=dataset.id)
        await asynchronous.share_run(run_id)
        queue = await asynchronous.create_annotation_queue(name=project)
        await asynchronous.add_runs_to_annotation_queue(queue.id, run_ids=[run_id])
        await asynchronous.push_prompt(name, object=prompt)
        pulled = await asynchronous.pull_prompt(name, skip_cache=True)
        await asynchronous.delete_prompt(name)
        return {
            "run": run.outputs,
            "runs": [run.name async for run in asynchronous.list_runs(project_name=project)],
            "feedback": (await eventually(lambda: asynchronous.read_feedback(feedback.id))).score,
            "examples": [each.inputs async for each in asynchronous.list_examples(dataset_id=dataset.id)],
            "shared": await asynchronous.run_is_shared(run_id),
            "queue": [run.name async for run in asynchronous.list_runs_from_annotation_queue(queue.id)],
            "prompt": templates(pulled) == templates(prompt),
        }


print(
    json.dumps(
        {
            "first": templates(first) == templates(prompt),
            "by_hash": templates(by_hash) == templates(prompt),
            "latest": templates(latest),
            "commits": len(commits),
            "described": [described.description, described.tags],
            "hub": hub,
            "asynchronous": asyncio.run(use_async_client()),
        }
    )
)
