import { setTimeout as pause } from 'node:timers/promises';
import type { Client } from '@langchain/langgraph-sdk';
import { expect } from 'vitest';
import type { Part } from '../api/agent-server/stream-parts.ts';

export interface RunOnThread {
  readonly threadId: string;
  readonly runId: string;
}

/**
 * A reader of a resumable run, from its first event to its end. When disconnected, it resumes with its last event id.
 */
export interface AgentReader {
  readonly parts: readonly Part[];
  /** Resolves once the stream has ended normally, with all events received. */
  readonly ended: Promise<readonly Part[]>;
}

const retryDelayMs = 100;

/**
 * Reads a run to its end.
 *
 * @param clients used round-robin: the reader moves to the next client each time a stream breaks.
 */
export function readToEnd(
  clients: readonly Client[],
  { threadId, runId }: RunOnThread,
  deadlineMs: number,
): AgentReader {
  const parts: Part[] = [];
  const read = async () => {
    const deadlineAtMs = performance.now() + deadlineMs;
    for (let turn = 0; ; turn += 1) {
      const client = clients[turn % clients.length] as Client;
      const lastEventId = parts.at(-1)?.id ?? '-1';
      try {
        for await (const part of client.runs.joinStream(threadId, runId, { lastEventId })) parts.push(part as Part);
        return parts;
      } catch (error) {
        if (performance.now() > deadlineAtMs) throw error;
        await pause(retryDelayMs);
      }
    }
  };
  return { parts, ended: read() };
}

export interface FollowedRun {
  readonly run: RunOnThread;
  readonly reader: AgentReader;
}

/**
 * Creates a run on a new thread, and returns it with the reader whose request created it; this reader does not
 * reconnect.
 */
export async function followNew(client: Client, graph: string, run: object): Promise<FollowedRun> {
  const { thread_id: threadId } = await client.threads.create();
  const parts: Part[] = [];
  const stream: AsyncIterable<unknown> = client.runs.stream(threadId, graph, run);
  const reading = stream[Symbol.asyncIterator]();
  const first = (await reading.next()).value as Part;
  parts.push(first);
  const read = async () => {
    for (let next = await reading.next(); !next.done; next = await reading.next()) parts.push(next.value as Part);
    return parts;
  };
  return { run: { threadId, runId: (first.data as { run_id: string }).run_id }, reader: { parts, ended: read() } };
}

/**
 * Checks what a reader received: all events of each attempt, once and in order, from the first one on. The first event
 * is `metadata`, which names the attempt.
 *
 * @returns the events by attempt.
 */
export function groupByAttempt({ runId }: RunOnThread, parts: readonly Part[]): ReadonlyMap<number, readonly Part[]> {
  const attempts = new Map<number, Part[]>();
  for (const part of parts) {
    const attempt = Number(part.id?.split('-')[0]);
    attempts.set(attempt, [...(attempts.get(attempt) ?? []), part]);
  }
  const expected = [...attempts].flatMap(([attempt, seen]) => seen.map((_, index) => `${attempt}-${index + 1}`));
  expect(parts.map(({ id }) => id)).toEqual(expected);
  expect([...attempts.keys()]).toEqual([...attempts.keys()].sort((a, b) => a - b));
  for (const [attempt, [first]] of attempts) {
    expect(first).toMatchObject({ event: 'metadata', data: { run_id: runId, attempt } });
  }
  return attempts;
}

/** Returns the values of `field` in the custom events that a graph wrote. */
export function written(parts: readonly Part[] | undefined, field: string): unknown[] {
  return (parts ?? []).flatMap(({ event, data }) =>
    event === 'custom' ? [(data as Record<string, unknown>)[field]] : [],
  );
}
