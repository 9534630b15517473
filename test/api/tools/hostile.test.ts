import { beforeAll, describe, expect, it } from 'vitest';
import { tools } from '../../../api/tools/tool-server.ts';
import { forSuite } from '../../for-suite.ts';
import { addKey } from '../start-api.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer } from './start-tools.ts';

const server = forSuite(() => startToolServer({ config: { rateLimitPerKey: 1_000_000 } }));
beforeAll(async () => {
  await sendRuns(server, [rootRun('hostile')]);
  await server.api.settled();
});

const hostile: readonly unknown[] = [
  [],
  { a: [null] },
  -1,
  1.5,
  true,
  'x'.repeat(50_000),
  'nul \u0000 and half \ud800',
  '["a", {"b":',
  '{"__proto__": {"x": 1}}',
  "'; DROP TABLE runs; --",
  '["\\ud800"]',
  { toString: 1, valueOf: 1 },
];

const valid: Readonly<Record<string, unknown>> = {
  project_name: 'hostile',
  thread_id: 't',
  page_number: 1,
  limit: 1,
  prompt_name: 'p',
  example_id: '00000000-0000-0000-0000-000000000000',
  run_id: '00000000-0000-0000-0000-000000000000',
  starting_on: '2026-01-01',
  ending_before: '2026-02-01',
  start_time: '2026-01-01T00:00:00Z',
  end_time: '2026-02-01T00:00:00Z',
};

describe.each(tools.map((tool) => [tool.name, tool] as const))('%s', (name, { parameters }) => {
  it('answers every value of every parameter, and never fails inside', { timeout: 120_000 }, async () => {
    const required = Object.fromEntries(
      Object.keys(parameters).flatMap((each) => (parameters[each]?.required ? [[each, valid[each]]] : [])),
    );
    for (const parameter of Object.keys(parameters)) {
      const results = await Promise.all(hostile.map((value) => server.call(name, { ...required, [parameter]: value })));
      for (const [index, result] of results.entries())
        expect(result.error ?? '', `${parameter}: ${JSON.stringify(hostile[index])?.slice(0, 60)}`).not.toMatch(
          /internal error|log of the server/i,
        );
    }
  });
});

describe('a key', () => {
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
  const statusOf = async (key: string, workspace?: string) => {
    const answer = await fetch(`${server.url}/mcp`, {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'langsmith-api-key': key,
        ...(workspace && { 'langsmith-workspace-id': workspace }),
      },
      body: JSON.stringify(list),
    });
    await answer.text();
    return answer.status;
  };

  it('that has expired is refused', async () => {
    const { owner, api } = server;
    const expiresAt = new Date(Date.now() - 1_000).toISOString();
    const key = await addKey({ database: api.database, organizationId: owner.id, userId: owner.userId, expiresAt });
    expect(await statusOf(key)).toBe(401);
  });

  it('of a deleted workspace is refused', async () => {
    const { owner, api } = server;
    const [, workspaceId] = owner.workspaceIds;
    expect(await statusOf(owner.workspaceKeys[1])).toBe(200);
    expect((await api.ask(owner.adminKey, 'DELETE', `/workspaces/${workspaceId}`)).status).toBeLessThan(300);
    expect(await statusOf(owner.workspaceKeys[1])).toBe(403);
    expect(await statusOf(owner.adminKey, workspaceId)).toBe(403);
  });
});
