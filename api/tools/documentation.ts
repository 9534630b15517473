/**
 * Tools that explain how to do a task with the SDK. No tool does these tasks, because they run code of the user or
 * write a lot of data. These tools read no data. The texts apply to the `langsmith` SDKs with Runlake.
 */
import { defineTool, type Tool } from './tool.ts';

const setUp = (endpoint: string) => `Set the address of Runlake and an API key first:

\`\`\`sh
export LANGSMITH_ENDPOINT=${endpoint} LANGSMITH_API_KEY=<API_KEY>
export LANGSMITH_WORKSPACE_ID=<WORKSPACE_ID>    # only for a key of the whole organisation
pip install -U langsmith    # or: npm install langsmith
\`\`\`
`;

function defineDocumentation(
  tool: Pick<Tool, 'name' | 'title'> & { readonly about: string; readonly write: (endpoint: string) => string },
): Tool {
  const { name, title, about, write } = tool;
  return defineTool({
    name,
    title,
    description: `${about} This tool only returns documentation: it changes nothing. Call it to learn which code to write.`,
    parameters: {},
    output: { result: { type: 'string', description: 'Documentation in Markdown.' } },
    run: async (_, { endpoint }) => write(endpoint),
  });
}

export const pushPrompt = defineDocumentation({
  name: 'push_prompt',
  title: 'How to push a prompt',
  about: 'Explains how to create prompts in Runlake, and how to commit new versions of them.',
  write: (endpoint) => `# Push a prompt

A prompt is a repo with commits. \`push_prompt\` creates it at the first call, and commits a new version at each further call.

${setUp(endpoint)}
\`\`\`python
from langchain_core.prompts import ChatPromptTemplate
from langsmith import Client

client = Client()
prompt = ChatPromptTemplate.from_messages([
    ("system", "You are a helpful assistant."),
    ("user", "{question}"),
])
client.push_prompt("my-prompt", object=prompt, description="Answers questions", tags=["qa"])
\`\`\`

\`\`\`ts
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { Client } from 'langsmith';

const prompt = ChatPromptTemplate.fromMessages([['system', 'You are a helpful assistant.'], ['user', '{question}']]);
await new Client().pushPrompt('my-prompt', { object: prompt, description: 'Answers questions' });
\`\`\`

- Names have lower-case letters, digits, \`-\` and \`_\`, and begin with a letter.
- A commit whose content is that of the latest commit is refused ("Nothing to commit").
- \`commit_tags\` (TypeScript: \`commitTags\`) tags the commit, for example \`production\`; a tag moves to the newest commit that has it.
- \`is_public=True\` needs the permission \`prompts:share\`, and a handle of the workspace.
- Read it back with \`client.pull_prompt("my-prompt")\`, \`client.pull_prompt("my-prompt:production")\`, or the tool
  \`get_prompt_by_name\`.
- The key needs the permissions \`prompts:create\` and \`prompts:update\`.
`,
});

export const createDataset = defineDocumentation({
  name: 'create_dataset',
  title: 'How to create a dataset',
  about: 'Explains how to create datasets in Runlake, and how to add examples to them.',
  write: (endpoint) => `# Create a dataset

A dataset is a collection of examples: inputs, and the outputs that are expected for them.

${setUp(endpoint)}
\`\`\`python
from langsmith import Client

client = Client()
dataset = client.create_dataset("questions", description="Questions with answers")
client.create_examples(
    dataset_id=dataset.id,
    examples=[
        {"inputs": {"question": "What is 2 + 2?"}, "outputs": {"answer": "4"}, "split": "test"},
        {"inputs": {"question": "What is the capital of France?"}, "outputs": {"answer": "Paris"}},
    ],
)
\`\`\`

\`\`\`ts
import { Client } from 'langsmith';

const client = new Client();
const { id } = await client.createDataset('questions', { description: 'Questions with answers' });
await client.createExamples([{ dataset_id: id, inputs: { question: 'What is 2 + 2?' }, outputs: { answer: '4' } }]);
\`\`\`

- \`data_type\` is \`kv\` (default), \`llm\` or \`chat\`.
- \`inputs_schema\` and \`outputs_schema\` are JSON Schemas that examples must match.
- \`client.upload_csv("questions.csv", input_keys=["question"], output_keys=["answer"], name="questions")\` creates a dataset from a file.
- To take a traced run as an example, pass \`source_run_id\` and \`use_source_run_io=True\`.
- Each write is a new version; \`as_of\` reads earlier ones.
- The key needs the permissions \`datasets:create\` and \`datasets:update\`.
`,
});

export const updateExamples = defineDocumentation({
  name: 'update_examples',
  title: 'How to update examples',
  about: 'Explains how to change and delete examples of a dataset in Runlake.',
  write: (endpoint) => `# Update examples

${setUp(endpoint)}
\`\`\`python
from langsmith import Client

client = Client()
examples = list(client.list_examples(dataset_name="questions"))
client.update_examples(
    dataset_id=examples[0].dataset_id,
    updates=[{"id": example.id, "metadata": {"reviewed": True}, "split": "test"} for example in examples],
)
client.delete_example(examples[0].id)
\`\`\`

\`\`\`ts
import { Client } from 'langsmith';

const client = new Client();
const updates = [];
for await (const { id, dataset_id } of client.listExamples({ datasetName: 'questions' }))
  updates.push({ id, dataset_id, metadata: { reviewed: true } });
await client.updateExamples(updates);
\`\`\`

- Absent fields stay unchanged; new metadata replaces the former metadata.
- One call changes examples of one dataset, all or none, and creates one version. Earlier versions keep the former values.
- The tool \`list_examples\` finds examples and their ids.
- The key needs the permission \`datasets:update\`.
`,
});

export const runExperiment = defineDocumentation({
  name: 'run_experiment',
  title: 'How to run an experiment',
  about: 'Explains how to evaluate an application on the examples of a dataset in Runlake.',
  write: (endpoint) => `# Run an experiment

An experiment runs a function of yours on each example of a dataset, and scores its outputs with evaluators. The code runs in your
process; Runlake stores the runs and the scores.

${setUp(endpoint)}
\`\`\`python
from langsmith import Client

client = Client()

def answer(inputs: dict) -> dict:
    return {"answer": my_application(inputs["question"])}

def correct(outputs: dict, reference_outputs: dict) -> bool:
    return outputs["answer"] == reference_outputs["answer"]

results = client.evaluate(answer, data="questions", evaluators=[correct], experiment_prefix="baseline", max_concurrency=4)
\`\`\`

\`\`\`ts
import { evaluate } from 'langsmith/evaluation';

await evaluate(async ({ question }) => ({ answer: await myApplication(question) }), {
  data: 'questions',
  evaluators: [({ outputs, referenceOutputs }) => ({ key: 'correct', score: outputs.answer === referenceOutputs?.answer })],
  experimentPrefix: 'baseline',
});
\`\`\`

- \`num_repetitions\` (TypeScript: \`numRepetitions\`) runs each example several times.
- \`data=client.list_examples(dataset_name="questions", splits=["test"])\` evaluates a part of the dataset.
- Evaluators that Runlake stores are not executed by it.
- The tool \`list_experiments\` compares experiments; \`fetch_runs\` with the name of an experiment as \`project_name\` shows its runs.
- The key needs the permissions \`datasets:read\`, \`projects:create\`, \`projects:update\`, \`projects:read\`, \`runs:write\`, \`runs:read\` and \`feedback:write\`.
`,
});
