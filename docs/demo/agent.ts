/**
 * A deployment, through `runlake deploy` and the stock `@langchain/langgraph-sdk`: a run streams and is interrupted by a
 * question; Runlake is killed, and starts the deployment again; the answer resumes the graph at the interrupt. Both runs
 * are traced and counted.
 */
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@langchain/langgraph-sdk';
import { program, withoutSettings } from './runlake-child.ts';
import type { DemoServer } from './server.ts';

/** A graph of docs/guide/agents, and the name of its deployment. */
const graph = 'trip';
const folder = fileURLToPath(new URL('../guide/agents', import.meta.url));
/** Instead of an installation from the registry, so that the demo needs no network. */
const linkPackages = `ln -s '${fileURLToPath(new URL('../../node_modules', import.meta.url))}' node_modules`;
const restartTimeoutMs = 60_000;

/** Deploys the folder of the graph with `runlake deploy`. @throws with the output of the command. */
export async function deployGraph({ url, adminKey }: DemoServer): Promise<void> {
  const args = [program, 'deploy', folder, '--name', graph, '--install-command', linkPackages];
  const access = { LANGSMITH_ENDPOINT: url, LANGSMITH_API_KEY: adminKey };
  const environment = { ...withoutSettings(process.env), ...access };
  await promisify(execFile)(process.execPath, args, { env: environment }).catch((error: { stderr?: string }) => {
    throw new Error(`runlake deploy failed:\n${error.stderr}`);
  });
}

/** Waits until the deployment serves again. */
export async function awaitGraph(server: DemoServer): Promise<void> {
  const deadlineMs = Date.now() + restartTimeoutMs;
  for (;;) {
    const response = await fetch(`${addressOf(server)}/ok`);
    if (response.ok) return;
    if (Date.now() > deadlineMs) throw new Error(`The deployment is not restored: ${await response.text()}`);
    await pause(200);
  }
}

interface Trip {
  readonly city?: string;
  readonly booking?: string;
}

/** Streams a run, word by word, to the terminal until its graph interrupts. @returns the id of its thread. */
export async function streamUntilAsked(server: DemoServer, city: string): Promise<string> {
  const client = agentsOf(server);
  const { thread_id: threadId } = await client.threads.create();
  process.stdout.write(`  ${graph} › `);
  const run = client.runs.stream(threadId, graph, { input: { city }, streamMode: 'custom' });
  for await (const { event, data } of run) {
    if (event === 'custom') process.stdout.write(`${(data as { word: string }).word} `);
  }
  const { tasks } = await client.threads.getState(threadId);
  const { question } = (tasks[0]?.interrupts[0]?.value ?? {}) as { question?: string };
  if (question === undefined) throw new Error(`The graph ${graph} did not interrupt with a question.`);
  console.log(`\n  ${graph} › ${question}`);
  return threadId;
}

/** Answers the question. @returns the result of the graph. */
export async function resumeTrip(server: DemoServer, threadId: string, answer: string): Promise<string> {
  console.log(`  you  › ${answer}`);
  const values = (await agentsOf(server).runs.wait(threadId, graph, { command: { resume: answer } })) as Trip;
  console.log(`  ${graph} › ${values.booking}`);
  return values.booking ?? '';
}

const addressOf = ({ url }: DemoServer) => `${url}/deployments/${graph}`;

function agentsOf(server: DemoServer): Client<Trip> {
  return new Client<Trip>({ apiUrl: addressOf(server), apiKey: server.adminKey });
}
