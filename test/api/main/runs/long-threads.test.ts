import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
const longIds = ['x', "é'\\\n"].map((text) => text.repeat(60_000 / text.length));
const longProjectId = randomUUID();
const min_start_time = new Date(noonMicros / 1_000).toISOString();

beforeAll(async () => {
  const [tenantId] = runs.ours.workspaceIds;
  await runs.api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    longProjectId,
    tenantId,
    'long threads',
  ]);
  const turns = [...longIds, 'short'].map((thread_id, at) =>
    runEvent({
      tenantId,
      projectId: longProjectId,
      startTimeMicros: noonMicros + (at + 1) * 1_000_000,
      values: { name: 'turn', runType: 'llm', totalTokens: at + 11, extra: json({ metadata: { thread_id } }) },
    }),
  );
  await insertEvents(runs.api.services.clickhouse, turns);
});

describe('threads with long ids', () => {
  const listThreads = (url: string, body: object) => runs.ask({ url, body });

  it('are listed, page by page', async () => {
    const found: unknown[] = [];
    for (let cursor: unknown; cursor !== null; ) {
      const answer = await listThreads('/v2/threads/query', {
        project_id: longProjectId,
        min_start_time,
        page_size: 2,
        ...(cursor !== undefined && { cursor }),
      });
      expect(answer.status).toBe(200);
      for (const { thread_id, count, total_tokens } of answer.body.items as Record<string, unknown>[])
        found.push([thread_id, count, total_tokens]);
      cursor = answer.body.next_cursor ?? null;
    }
    expect(found).toEqual([
      ['short', 1, 13],
      [longIds[1], 1, 12],
      [longIds[0], 1, 11],
    ]);
  });

  it('are listed as groups', async () => {
    const answer = await listThreads('/runs/group', { session_id: longProjectId, group_by: 'conversation' });
    expect(answer.status).toBe(200);
    const groups = answer.body.groups as { group_key: string; count: number }[];
    expect(groups.map(({ group_key, count }) => [group_key, count])).toEqual([
      ['short', 1],
      [longIds[1], 1],
      [longIds[0], 1],
    ]);
  });

  it('are groups of statistics', async () => {
    const group_by = { attribute: 'metadata', path: 'thread_id' };
    const request = { session: [longProjectId], is_root: true, group_by, select: ['run_count', 'total_tokens'] };
    for (const groups of [undefined, longIds]) {
      const answer = await listThreads('/runs/stats', { ...request, ...(groups && { groups }) });
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({
        ...(groups === undefined && { short: { run_count: 1, total_tokens: 13 } }),
        [longIds[1]!]: { run_count: 1, total_tokens: 12 },
        [longIds[0]!]: { run_count: 1, total_tokens: 11 },
      });
    }
  });
});
