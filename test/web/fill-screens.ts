import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { expect, vi } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { askRunlake } from '../ask-runlake.ts';
import type { RunlakeProcess } from '../runlake-process.ts';
import { agentSource } from './agent-source.ts';
import { sendExperiment } from './send-experiments.ts';
import { buildChatPrompt } from './send-prompts.ts';
import { buildAgentTrace, type SentRun, sendRuns } from './send-traces.ts';

const hourMs = 3_600_000;

/** What the screens show. */
export interface ScreenData {
  readonly projectId: string;
  readonly trace: readonly SentRun[];
  readonly dataset: { readonly id: string; readonly experimentIds: readonly string[]; readonly exampleId: string };
  readonly exportId: string;
  readonly queueId: string;
  /** A deployment whose graph waits for an answer. */
  readonly agent: { readonly deploymentId: string; readonly assistantId: string; readonly threadId: string };
  readonly traces: number;
}

/** Fills an installation with data for each screen. */
export async function fillScreens(runlake: RunlakeProcess): Promise<ScreenData> {
  const now = Date.now() - 60_000;
  const trace = buildAgentTrace('support-agent', now, 3);
  const runs = [...trace];
  for (const [place, project] of ['support-agent', 'billing-bot', 'docs-search', 'release-notes'].entries())
    for (let index = 0; index < 90 - 20 * place; index++)
      runs.push(...buildAgentTrace(project, now - index * hourMs * (index < 30 ? 0.2 : 3 + place), index + place));
  await sendRuns(runlake.url, runlake.apiKey, runs);
  const dataset = await addDatasetAndPrompts(runlake);
  const queueId = await createQueue(runlake, runs);
  const agent = await deployAgent(runlake);
  // The roll-up counts an hour within seconds. The runs of the two experiments and that of the agent are traces, too.
  const traces = 241 + 2 * topics.length + 1;
  await vi.waitFor(async () => expect(await countUsage(runlake, now)).toBe(traces), { timeout: 30_000, interval: 250 });
  return { trace, dataset, queueId, agent, traces, ...(await createExport(runlake, now)) };
}

/** Deploys a graph and runs it until it waits for an answer. */
async function deployAgent(runlake: RunlakeProcess): Promise<ScreenData['agent']> {
  const client = new DeploymentClient(runlake.url, runlake.apiKey);
  const { id, latest_revision_id } = await client.deploy('support agent', agentSource, {
    secrets: [{ name: 'SHOP_TOKEN', value: 'a-secret-of-the-shop' }],
  });
  await client.awaitDeployed(id, latest_revision_id);
  const ask = async (path: string, body: object) =>
    (await client.ask('POST', `/deployments/support-agent${path}`, body)).body;
  const [{ assistant_id: assistantId }] = await ask('/assistants/search', { graph_id: 'support' });
  const { thread_id: threadId } = await ask('/threads', {});
  const input = { messages: [{ role: 'user', content: 'I want a refund for my last order.' }] };
  await ask(`/threads/${threadId}/runs/wait`, { assistant_id: assistantId, input });
  return { deploymentId: id, assistantId, threadId };
}

async function countUsage(runlake: RunlakeProcess, now: number): Promise<number> {
  const [workspace] = await askRunlake(runlake, '/workspaces');
  const query = new URLSearchParams({
    start_time: new Date(now - 30 * 24 * hourMs).toISOString(),
    end_time: new Date(now + hourMs).toISOString(),
    workspace_ids: workspace.id,
  });
  const { usage: rows } = await askRunlake(runlake, `/orgs/current/billing/granular-usage?${query}`);
  return rows.reduce((sum: number, { traces }: { traces: number }) => sum + traces, 0);
}

const topics = ['open invoices', 'a refund', 'two equal orders', 'a new address', 'the plan', 'a lost password'];

/** Adds a dataset with two experiments, and prompts, through the SDK and the API. */
async function addDatasetAndPrompts(runlake: RunlakeProcess): Promise<ScreenData['dataset']> {
  const client = new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey, disablePromptCache: true });
  const { id } = await client.createDataset('support questions', { description: 'Questions of customers of March' });
  const examples = topics.map((topic, index) => ({
    id: randomUUID(),
    dataset_id: id,
    inputs: { messages: [{ role: 'user', content: `I have a question about ${topic}. Can you help me?` }] },
    outputs: { answer: `The article about ${topic} says what to do.` },
    metadata: { language: 'en' },
    split: index % 2 === 0 ? 'base' : 'hard',
  }));
  await client.createExamples(examples);
  const send = (name: string, isGood: (index: number) => boolean, seconds: number) =>
    sendExperiment(runlake, { name, datasetId: id }, examples, (_, index) => ({
      outputs: { answer: isGood(index) ? `See the article about ${topics[index]}.` : 'Sorry, I do not know.' },
      seconds: seconds + index / 10,
      feedback: { helpful: isGood(index) ? 1 : 0.2, 'right language': 1 },
    }));
  const experimentIds = [
    await send('gpt-4o-mini, prompt 1', (index) => index % 3 !== 0, 2.1),
    await send('gpt-4o-mini, prompt 2', (index) => index !== 1, 1.4),
  ];
  const settings = { model: 'gpt-4o-mini', temperature: 0.2 };
  const first = 'You are the support agent of {company}.\nAnswer briefly.';
  await client.pushPrompt('support-agent', {
    object: buildChatPrompt(first, settings),
    description: 'Answers questions of customers',
    tags: ['support'],
    commitTags: ['production'],
  });
  await client.pushPrompt('support-agent', {
    object: buildChatPrompt(`${first.replace('briefly', 'briefly and kindly')}\nName the article.`, settings),
    commitDescription: 'Kinder, with sources',
  });
  await publishPrompts(runlake);
  await client.pushSkill('write-mails', { files: { 'SKILL.md': { type: 'file', content: 'Write short mails.' } } });
  return { id, experimentIds, exampleId: examples[0]?.id ?? '' };
}

/** Publishes prompts in a workspace of another organisation. */
async function publishPrompts(runlake: RunlakeProcess): Promise<void> {
  const organization = { display_name: 'Example Labs', tenant_handle: 'example-labs' };
  const { key } = (await askRunlake(runlake, '/orgs', { body: organization })).api_key;
  const client = new Client({ apiUrl: runlake.url, apiKey: key, disablePromptCache: true });
  const publish = (name: string, text: string, description: string) =>
    client.pushPrompt(name, { object: buildChatPrompt(text), description, isPublic: true, tags: ['shared'] });
  await publish('summarise', 'Summarise {text} in three sentences.', 'Short summaries for status pages');
  await publish('translate', 'Translate {text} to {language}. Keep the names.', 'Translates release notes');
}

/** Creates an annotation queue with some of the traces. */
async function createQueue(runlake: RunlakeProcess, runs: readonly SentRun[]): Promise<string> {
  const post = (path: string, body: unknown) => askRunlake(runlake, `/${path}`, { body });
  const categories = ['wrong', 'partly', 'correct'].map((label, value) => ({ value: value / 2, label }));
  await post('feedback-configs', { feedback_key: 'correctness', feedback_config: { type: 'categorical', categories } });
  await post('feedback-configs', { feedback_key: 'tone', feedback_config: { type: 'continuous', min: 0, max: 10 } });
  const { id } = await post('annotation-queues', {
    name: 'Answers of the week',
    description: 'A sample of the support agent',
    rubric_instructions: 'Compare each answer with the records.',
    rubric_items: [
      { feedback_key: 'correctness', is_required: true, description: 'Does the answer agree with the cited records?' },
      { feedback_key: 'tone' },
    ],
  });
  const answered = runs.filter((run) => run.name === 'support agent' && run.outputs !== undefined);
  await post(
    `annotation-queues/${id}/runs`,
    answered.slice(0, 12).map((run) => run.id),
  );
  return id;
}

/** Creates an export of three days, which ends within seconds. */
async function createExport(runlake: RunlakeProcess, now: number): Promise<Pick<ScreenData, 'projectId' | 'exportId'>> {
  const ask = (path: string, body?: object) => askRunlake(runlake, path, { body });
  const [{ id: projectId }] = await ask('/sessions?name=support-agent');
  const lake = { destination_type: 'local', display_name: 'lake', config: { prefix: 'traces' } };
  const { id: destinationId } = await ask('/bulk-exports/destinations', lake);
  const { id: exportId } = await ask('/bulk-exports', {
    ...{ bulk_export_destination_id: destinationId, session_id: projectId, format_version: 'v2_beta' },
    start_time: new Date(now - 72 * hourMs).toISOString(),
    end_time: new Date(now + hourMs).toISOString(),
  });
  return { projectId, exportId };
}
