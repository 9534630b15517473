/**
 * The agent server, through the stock `@langchain/langgraph-sdk`: a run streams and is interrupted by a question;
 * Runlake is killed; the answer resumes the graph at the interrupt. Both runs are traced and counted.
 */
import { Client } from '@langchain/langgraph-sdk';
import type { DemoServer } from './server.ts';

/** A graph of docs/guide/agents. */
const graph = 'trip';

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

function agentsOf({ agentsUrl, adminKey }: DemoServer): Client<Trip> {
  return new Client<Trip>({ apiUrl: agentsUrl, apiKey: adminKey });
}
