import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { createStreamPublisher } from '../../../pipelines/agents/streams/create-stream-publisher.ts';
import { forSuite } from '../../for-suite.ts';
import { chunk, makeRunEnd } from '../../pipelines/agents/streams/streams-under-test.ts';
import { startAgentServer } from './start-agent-server.ts';
import type { Part } from './stream-parts.ts';

/** Event ids of the stream of a thread: a client that reconnects after any event has each event once. */

const agents = forSuite(() => startAgentServer());

type Mode = 'run_modes' | 'lifecycle' | 'state_update';

/** Reads `count` events of a thread after the event with the given id. */
async function read(threadId: string, lastEventId: string, count: number, streamMode: Mode[]): Promise<Part[]> {
  const parts: Part[] = [];
  const disconnect = new AbortController();
  const options = { streamMode, lastEventId, signal: disconnect.signal };
  if (count > 0)
    for await (const part of agents.client.threads.joinStream(threadId, options)) {
      parts.push(part as Part);
      if (parts.length === count) break;
    }
  disconnect.abort();
  return parts;
}

/** Publishes the events a, b and c of two runs; the end of the first run follows b. */
async function publishLateEnd(): Promise<string> {
  const { thread_id: threadId } = await agents.client.threads.create();
  const { deploymentId } = agents.services.agents;
  const publisher = createStreamPublisher({ log: agents.shared.log, retentionMs: 3_600_000 });
  const starts = [1, 2].map((threadStart) => ({
    ...{ deploymentId, threadId, runId: randomUUID(), attempt: 1, threadStart, kept: true },
  }));
  const [first, second] = starts.map((start) => publisher.open(start));
  await first!.write([chunk('a')]);
  await first!.settled();
  await second!.write([chunk('b')]);
  await second!.settled();
  await publisher.publishEnd(makeRunEnd(starts[0]!));
  await second!.write([chunk('c')]);
  await second!.settled();
  await publisher.publishEnd(makeRunEnd(starts[1]!));
  return threadId;
}

it('repeats and misses no event if the end of a run follows the first events of the next run', async () => {
  const threadId = await publishLateEnd();
  const everything = await read(threadId, '-', 5, ['run_modes']);
  const names = everything.map(({ data }) => (data as { text?: string; run_id?: string }).text ?? 'end');
  expect(names).toEqual(['a', 'b', 'end', 'c', 'end']);
  for (const last of [1, 2, 3])
    expect(await read(threadId, everything[last]!.id!, 4 - last, ['run_modes'])).toEqual(everything.slice(last + 1));
});

it('sends the state of a run again if the client has received only its end', async () => {
  const { thread_id: threadId } = await agents.client.threads.create();
  await agents.client.runs.wait(threadId, 'burst', { input: { n: 1 }, streamResumable: true });
  const modes: Mode[] = ['lifecycle', 'state_update'];
  const [start, end, state] = await read(threadId, '-', 3, modes);
  expect([start, end, state].map((part) => part?.event)).toEqual(['metadata', 'metadata', 'state_update']);
  const again = await read(threadId, end!.id!, 2, modes);
  expect(again.map(({ event, data }) => ({ event, data }))).toMatchObject([
    { event: end!.event },
    { data: state!.data },
  ]);
});

it('do not wait for the end of a state update', async () => {
  const { client } = agents;
  const { thread_id: threadId } = await client.threads.create({ graphId: 'steps' });
  await client.threads.updateState(threadId, { values: { log: ['a'] }, asNode: 'step' });
  const modes: Mode[] = ['lifecycle', 'state_update'];
  const [update] = await read(threadId, '-', 1, modes);
  expect(update).toMatchObject({ event: 'state_update', id: expect.stringMatching(/^\d+$/) });
  await client.runs.wait(threadId, 'steps', { input: { steps: 1 }, streamResumable: true });
  const later = await read(threadId, update!.id!, 3, modes);
  expect(later.map(({ event }) => event)).toEqual(['metadata', 'metadata', 'state_update']);
  for (const { id } of later) if (id !== undefined) expect(id).toMatch(/^\d+$/);
});

/** Reads `count` messages of the event-stream protocol after the event with the number `since`. */
async function readProtocol(threadId: string, since: number, count: number) {
  const body = { channels: ['custom', 'lifecycle'], since };
  const { body: stream } = await agents.ask('POST', `/threads/${threadId}/stream/events`, body);
  const messages: { seq: number; params: { data: { payload?: { text: string }; event?: string } } }[] = [];
  let text = '';
  for await (const bytes of stream!.pipeThrough(new TextDecoderStream())) {
    text += bytes;
    const lines = text.split('\n');
    text = lines.pop()!;
    for (const line of lines) if (line.startsWith('data: ')) messages.push(JSON.parse(line.slice('data: '.length)));
    if (messages.length >= count) break;
  }
  return messages.map(({ seq, params: { data } }) => ({ seq, name: data.payload?.text ?? data.event }));
}

it('sends the end of a run that follows the first events of the next run after `since`, too', async () => {
  const threadId = await publishLateEnd();
  const everything = await readProtocol(threadId, 0, 5);
  expect(everything.map(({ name }) => name)).toEqual(['a', 'b', 'completed', 'c', 'completed']);
  for (const last of [1, 3])
    expect(await readProtocol(threadId, everything[last]!.seq, 4 - last)).toEqual(everything.slice(last + 1));
});
