import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { ToolsUnderTest } from './start-tools.ts';

export interface SentRun {
  readonly id: string;
  readonly trace_id: string;
  readonly dotted_order: string;
  readonly [field: string]: unknown;
}

let lastMs = Date.now() - 3_600_000;

/** A root run; each starts a second after the one before. */
export function rootRun(project: string, more: object = {}): SentRun {
  lastMs += 1_000;
  const id = randomUUID();
  return { ...buildRun(id, lastMs, ''), trace_id: id, session_name: project, ...more } as SentRun;
}

/** A run below another. */
export function childRun(parent: SentRun, project: string, more: object = {}): SentRun {
  lastMs += 1_000;
  const run = buildRun(randomUUID(), lastMs, `${parent.dotted_order}.`);
  return { ...run, trace_id: parent.trace_id, parent_run_id: parent.id, session_name: project, ...more } as SentRun;
}

function buildRun(id: string, startMs: number, prefix: string) {
  const startTime = new Date(startMs).toISOString();
  return {
    id,
    dotted_order: `${prefix}${startTime.replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`,
    name: 'agent',
    run_type: 'chain',
    start_time: startTime,
    end_time: new Date(startMs + 500).toISOString(),
    inputs: { question: 'why' },
    outputs: { answer: 'because' },
  };
}

/** Sends runs with the key of the first workspace of the owner. */
export async function sendRuns({ api, owner }: ToolsUnderTest, runs: readonly object[]): Promise<void> {
  const answer = await api.ask(owner.workspaceKeys[0], 'POST', '/runs/batch', { post: runs });
  expect(answer.status).toBe(202);
}
