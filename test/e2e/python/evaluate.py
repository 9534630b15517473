"""Datasets and experiments through the stock Python SDK. Prints what it found as JSON."""

import json
import tempfile

from langsmith import Client, evaluate
from langsmith.schemas import ExampleUpsertWithAttachments

client = Client()

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

# The comparison reads the runs from the server.client.request_with_retries("PUT", f"/datasets/{dataset.id}/share", params={"share_projects": True})

client.flush()


def prefer(runs: list, example) -> dict:
    return {
        "key": "preferred",
        "scores": {each.id: int(each.outputs["square"] == example.outputs["square"]) for each in runs},
    }


compared = list(evaluate((wrong.experiment_name, right.experiment_name), client=client, evaluators=[prefer]))

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
