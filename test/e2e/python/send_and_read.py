"""Sends traces with the stock langsmith SDK and reads them back; prints what it found as JSON.

Called with the address and the key in LANGSMITH_ENDPOINT and LANGSMITH_API_KEY, as any user of the SDK would.
"""

import datetime
import json
import uuid

import langsmith
from langsmith import Client
from langsmith.run_trees import RunTree

client = Client()
project = f"python-{uuid.uuid4()}"

root = RunTree(name="agent", run_type="chain", inputs={"question": "λ?"}, project_name=project, ls_client=client)
root.post()
model = root.create_child(name="model", run_type="llm", inputs={"messages": [{"role": "user", "content": "hi"}]})
model.post()
model.end(
    outputs={
        "answer": "ho",
        "usage_metadata": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, "total_cost": 0.00042},
    }
)
model.patch()
failing = root.create_child(name="tool", run_type="tool", inputs={"big": 12345678901234567890})
failing.post()
failing.end(error="ValueError('no')")
failing.patch()
root.end(outputs={"answer": "ho"})
root.patch()
client.create_feedback(root.id, "score", score=0.5, comment="fine", trace_id=root.trace_id)
client.flush()

plain = uuid.uuid4()
client_without_batches = Client(auto_batch_tracing=False)
client_without_batches.create_run(
    "plain", {"x": 1}, "chain", id=plain, project_name=project, start_time=datetime.datetime.now(datetime.timezone.utc)
)
client_without_batches.update_run(plain, outputs={"y": 2}, end_time=datetime.datetime.now(datetime.timezone.utc))

# Name of the model and tokens arrive in different requests.
priced = uuid.uuid4()
client_without_batches.create_run(
    "priced",
    {"messages": []},
    "llm",
    id=priced,
    project_name=project,
    start_time=datetime.datetime.now(datetime.timezone.utc),
    extra={"metadata": {"ls_model_name": "gpt-4o-mini", "ls_provider": "openai"}},
)
usage = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010, "input_token_details": {"cache_read": 600}}
client_without_batches.update_run(
    priced, outputs={"usage_metadata": usage}, end_time=datetime.datetime.now(datetime.timezone.utc)
)

# A run of an agent names no project; its URL contains the project that the server found.
agent = langsmith.agent_address(id=f"agent-{uuid.uuid4()}", environment="staging")
of_agent = RunTree(name="of an agent", run_type="chain", inputs={}, address=agent, ls_client=client)
of_agent.post()
of_agent.end(outputs={})
of_agent.patch()
client.create_feedback(of_agent.id, "score", score=1, trace_id=of_agent.trace_id, address=agent)
client.flush()
agent_project = client.read_project(project_name=f"{agent['id']}/staging")
agent_feedback = next(client.list_feedback(run_ids=[of_agent.id]))

runs = {run.name: run for run in client.list_runs(project_name=project)}

for turn in range(2):
    of_thread = RunTree(
        name=f"turn {turn}",
        run_type="chain",
        inputs={},
        project_name=f"{project} thread",
        extra={"metadata": {"thread_id": project}},
        ls_client=client,
    )
    of_thread.post()
    of_thread.create_child(name="inner", run_type="tool", inputs={}).post()
    of_thread.end(outputs={})
    of_thread.patch()
client.flush()


def read_thread(**options) -> list:
    return [run.name for run in client.read_thread(thread_id=project, project_name=f"{project} thread", **options)]


# Without a key, by the URL and by the token.
link = client.create_presigned_feedback_token(root.id, "thumbs")
client.create_feedback_from_token(link.url, score=0, comment="bad")
client.create_feedback_from_token(link.url.split("/")[-1], score=1, comment="good")

queue = client.create_annotation_queue(name=project)
client.add_runs_to_annotation_queue(queue.id, run_ids=[root.id, plain])
client.delete_run_from_annotation_queue(queue.id, run_id=root.id)
client.share_run(root.id)
shared = [client.run_is_shared(root.id), client.run_is_shared(plain)]
client.unshare_run(root.id)
shared.append(client.run_is_shared(root.id))
read = client.read_run(root.id, load_child_runs=True)
print(
    json.dumps(
        {
            "version": langsmith.__version__,
            "agent": [
                str(agent_project.id) in client.get_run_url(run=of_agent),
                client.read_run(of_agent.id).session_id == agent_project.id,
                agent_feedback.session_id == agent_project.id,
            ],
            "names": sorted(runs),
            "status": {name: run.status for name, run in runs.items()},
            "tokens": runs["model"].total_tokens,
            "cost": str(runs["model"].total_cost),
            "priced": [
                str(runs["priced"].prompt_cost),
                str(runs["priced"].completion_cost),
                str(runs["priced"].total_cost),
            ],
            "error": runs["tool"].error,
            "big": str(runs["tool"].inputs["big"]),
            "outputs": read.outputs,
            "children": sorted(child.name for child in read.child_runs or []),
            "plain": runs["plain"].outputs,
            "projects": [found.name for found in client.list_projects(name=project)],
            "read_project": client.read_project(project_name=project).name,
            "roots": sorted(run.name for run in client.list_runs(project_name=project, is_root=True)),
            "errors": sorted(run.name for run in client.list_runs(project_name=project, error=True)),
            "shared": shared,
            "thread": {
                "asc": read_thread(),
                "desc": read_thread(order="desc"),
                "filtered": read_thread(filter='eq(name, "turn 1")', limit=1),
            },
            "queue": [run.name for run in client.list_runs_from_annotation_queue(queue.id)],
            "feedback": [[f.key, f.score, f.comment] for f in client.list_feedback(run_ids=[root.id])],
        }
    )
)
