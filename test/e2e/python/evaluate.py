"""Datasets and experiments through the stock Python SDK. Prints what it found as JSON."""

import asyncio
import json
import tempfile
import time

from langsmith import Client, aevaluate, evaluate
from langsmith.evaluation import evaluate_existing
from langsmith.run_trees import RunTree
from langsmith.schemas import ExampleUpsertWithAttachments
from langsmith.utils import LangSmithNotFoundError

client = Client()


def until_stored(run_id) -> None:
    for _ in range(300):
        try:
            if client.read_run(run_id).outputs is not None:
                return
        except LangSmithNotFoundError:
            pass
        time.sleep(0.1)
    raise TimeoutError("not stored within 30 s")


with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    file.write("n,square\n1,1\n2,4\n3,9\n")
    file.flush()
    uploaded = client.upload_csv(file.name, input_keys=["n"], output_keys=["square"], name="from a file")

dataset = client.create_dataset("squares")
made = client.create_examples(
    dataset_id=dataset.id,
    examples=[{"inputs": {"n": n}, "outputs": {"square": n * n}, "split": "odd" if n % 2 else "even"} for n in (1, 2, 3)],
)


def is_correct(outputs: dict, reference_outputs: dict) -> dict:
    return {"key": "correct", "score": int(outputs["square"] == reference_outputs["square"])}


def run(target, prefix: str):
    return client.evaluate(
        target, data="squares", evaluators=[is_correct], experiment_prefix=prefix, num_repetitions=2, blocking=True
    )


wrong = run(lambda inputs: {"square": 6 if inputs["n"] == 3 else inputs["n"] ** 2}, "wrong")
right = run(lambda inputs: {"square": inputs["n"] ** 2}, "right")

# The comparison reads the runs from the server.
client.flush()


def prefer(runs: list, example) -> dict:
    return {
        "key": "preferred",
        "scores": {each.id: int(each.outputs["square"] == example.outputs["square"]) for each in runs},
    }


compared = list(evaluate((wrong.experiment_name, right.experiment_name), client=client, evaluators=[prefer]))

# Later evaluators rate the runs of an experiment, more runs extend it, and an asynchronous target makes another one.
with_files = client.create_dataset("with files")
client.create_examples(
    dataset_id=with_files.id,
    examples=[{"inputs": {"n": n}, "attachments": {"note": ("text/plain", str(n).encode())}} for n in (1, 2)],
)


def read_note(inputs: dict, attachments: dict) -> dict:
    return {"note": attachments["note"]["reader"].read().decode()}


def has_note(inputs: dict, outputs: dict, attachments: dict) -> dict:
    note = attachments["note"]["reader"].read().decode()
    return {"key": "has_note", "score": int(outputs["note"] == note == str(inputs["n"]))}


noted = client.evaluate(read_note, data="with files", evaluators=[has_note], blocking=True)
client.flush()
rated = evaluate_existing(
    noted.experiment_name,
    evaluators=[lambda run, example: {"key": "late", "score": len(run.outputs["note"])}],
    summary_evaluators=[lambda runs, examples: {"key": "runs", "score": len(runs)}],
    client=client,
    load_nested=True,
    blocking=True,
)
[one] = client.list_examples(dataset_id=with_files.id, limit=1, include_attachments=True)
extended = evaluate(read_note, data=[one], evaluators=[has_note], client=client, experiment=noted.experiment_name)
extended_rows = len(list(extended))


async def square(inputs: dict) -> dict:
    return {"square": inputs["n"] ** 2}


async def evaluate_asynchronously() -> list:
    results = await aevaluate(square, data="squares", evaluators=[is_correct], max_concurrency=2, client=client)
    return [row["evaluation_results"]["results"][0].score async for row in results]


awaited = asyncio.run(evaluate_asynchronously())
client.flush()

source = RunTree(
    name="source", run_type="chain", inputs={"n": 5}, attachments={"note": ("text/plain", b"five")}, ls_client=client
)
source.post()
source.end(outputs={"square": 25})
source.patch()
client.flush()
until_stored(source.id)
from_run = client.create_example(dataset_id=with_files.id, source_run_id=source.id, use_source_run_io=True)
from_run = client.read_example(from_run.id)

changeable = client.create_dataset("upserted")
for answer in ("old", "new"):
    upsert = ExampleUpsertWithAttachments(
        id=changeable.id,  # any UUID
        dataset_id=changeable.id,
        inputs={"answer": answer},
        attachments={"note": ("text/plain", answer.encode())},
    )
    upserted = client.upsert_examples_multipart(upserts=[upsert])
[changed] = client.list_examples(dataset_id=changeable.id, include_attachments=True)

client.update_dataset_splits(dataset_id=dataset.id, split_name="checked", example_ids=[made["example_ids"][0]])
share = client.share_dataset(dataset_id=dataset.id)
shared = client.read_shared_dataset(str(share["share_token"]))
client.request_with_retries("PUT", f"/datasets/{dataset.id}/share", params={"share_projects": True})

client.flush()
print(
    json.dumps(
        {
            "uploaded": [example.inputs["n"] for example in client.list_examples(dataset_id=uploaded.id)],
            "scores": {
                name: sorted(
                    (row["example"].inputs["n"], row["evaluation_results"]["results"][0].score) for row in results
                )
                for name, results in (("wrong", wrong), ("right", right))
            },
            "dataset": str(dataset.id),
            "notes": sorted([row["run"].outputs["note"], row["evaluation_results"]["results"][0].score] for row in noted),
            "late": [row["evaluation_results"]["results"][0].score for row in rated],
            "extended": [extended_rows, client.read_project(project_id=noted.experiment_id).run_count],
            "awaited": awaited,
            "from_run": [from_run.inputs, from_run.outputs, from_run.attachments["note"]["reader"].read().decode()],
            "compared": len(compared),
            "experiments": len(list(client.list_projects(reference_dataset_id=dataset.id))),
            "odd": sorted(example.inputs["n"] for example in client.list_examples(dataset_id=dataset.id, splits=["odd"])),
            "filtered": [
                example.inputs["n"]
                for example in client.list_examples(
                    dataset_id=dataset.id, filter='and(eq(metadata_key, "dataset_split"), eq(metadata_value, "checked"))'
                )
            ],
            "splits": client.list_dataset_splits(dataset_id=dataset.id),
            "upserted": [upserted["count"], changed.inputs["answer"], changed.attachments["note"]["reader"].read().decode()],
            "shared": shared.name,
            "shared_experiments": len(list(client.list_shared_projects(dataset_share_token=str(share["share_token"])))),
        }
    )
)
