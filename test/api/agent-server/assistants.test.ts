import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { computeSystemAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import { forSuite } from '../../for-suite.ts';
import { readErrorStatus, startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer());

const create = (more: object = {}) => agent.client.assistants.create({ graphId: 'echo', ...more });

describe('assistants', () => {
  it('exist for each graph under its id, the same on every server', async () => {
    const echo = await agent.client.assistants.get('echo');
    expect(echo).toMatchObject({
      graph_id: 'echo',
      name: 'echo',
      description: 'Answers with what it was told',
      metadata: { created_by: 'system' },
      version: 1,
    });
    expect(await agent.client.assistants.get(echo.assistant_id)).toEqual(echo);
  });

  it('are created, updated in versions, reset and deleted', async () => {
    const id = randomUUID();
    const made = await create({
      assistantId: id,
      name: 'Anna',
      config: { configurable: { style: 'dry' }, tags: ['a'] },
      context: { tone: 'warm' },
      metadata: { team: 'a', kept: 1 },
    });
    expect(made).toMatchObject({ assistant_id: id, version: 1, name: 'Anna', context: { tone: 'warm' } });
    expect(made.config).toEqual({ configurable: { style: 'dry' }, tags: ['a'] });

    const changed = await agent.client.assistants.update(id, { name: 'Berta', metadata: { team: 'b' } });
    expect(changed).toMatchObject({ version: 2, name: 'Berta', metadata: { team: 'b', kept: 1 }, config: made.config });
    const versions = await agent.client.assistants.getVersions(id);
    expect(versions.map(({ version, name }) => [version, name])).toEqual([
      [2, 'Berta'],
      [1, 'Anna'],
    ]);
    expect(await agent.client.assistants.getVersions(id, { metadata: { team: 'a' } })).toHaveLength(1);
    expect(await agent.client.assistants.setLatest(id, 1)).toMatchObject({ version: 1, name: 'Anna' });
    expect(await agent.client.assistants.get(id)).toMatchObject({ version: 1, name: 'Anna', metadata: { team: 'a' } });

    await agent.client.assistants.delete(id);
    expect(await readErrorStatus(agent.client.assistants.get(id))).toBe(404);
  });

  it('with the same id are created once', async () => {
    const { assistant_id: assistantId } = await create({ name: 'once' });
    expect(await readErrorStatus(create({ assistantId }))).toBe(409);
    expect(await create({ assistantId, name: 'twice', ifExists: 'do_nothing' })).toMatchObject({ name: 'once' });
  });

  it('are searched in pages, with totals, and counted', async () => {
    const group = randomUUID();
    for (const name of ['c-1', 'a-2', 'b-3']) await create({ name, metadata: { group, deep: { name } } });
    const { client } = agent;
    const query = { metadata: { group }, sortBy: 'name', sortOrder: 'asc', limit: 2 } as const;
    const first = await client.assistants.search({ ...query, includePagination: true });
    expect(first.assistants.map(({ name }) => name)).toEqual(['a-2', 'b-3']);
    expect(first.next).toBe('2');
    const last = await client.assistants.search({ ...query, offset: 2, includePagination: true });
    expect([last.assistants.map(({ name }) => name), last.next]).toEqual([['c-1'], null]);
    const answer = await agent.ask('POST', '/assistants/search', { metadata: { group }, limit: 1 });
    expect(answer.headers.get('x-pagination-total')).toBe('3');

    expect(await client.assistants.count({ metadata: { group } })).toBe(3);
    expect(await client.assistants.search({ metadata: { group, deep: { name: 'a-2' } } })).toHaveLength(1);
    expect(await client.assistants.search({ metadata: { group }, name: 'A-' })).toHaveLength(1);
    expect(await client.assistants.search({ metadata: { group }, graphId: 'ask' })).toHaveLength(0);
    const [picked] = await client.assistants.search({ metadata: { group }, limit: 1, select: ['name', 'version'] });
    expect(Object.keys(picked ?? {}).sort()).toEqual(['name', 'version']);
  });

  it('of served graphs are created again when they are deleted', async () => {
    const { client } = agent;
    const first = await client.assistants.get('builder');
    const { thread_id: threadId } = await client.threads.create();
    const run = await client.runs.create(threadId, 'builder', { afterSeconds: 600 });
    await client.assistants.update('builder', { graphId: 'plain', metadata: { created_by: 'me' } });
    await client.assistants.delete(first.assistant_id);
    const { created_at, updated_at, ...same } = first;
    expect(await client.assistants.get('builder')).toMatchObject(same);
    expect(await client.assistants.getVersions(first.assistant_id)).toMatchObject([
      { version: 1, graph_id: 'builder' },
    ]);
    expect(await readErrorStatus(client.runs.get(threadId, run.run_id))).toBe(404);
    // The assistant of a graph that is no longer served is gone.
    await agent.database.execute(
      `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, metadata)
       VALUES ($1, $2, 'removed', 'removed', '{"created_by": "system"}')`,
      [agent.services.agents.deploymentId, computeSystemAssistantId('removed')],
    );
    await client.assistants.delete(computeSystemAssistantId('removed'));
    expect(await readErrorStatus(client.assistants.get('removed'))).toBe(404);
  });

  it('delete their threads if requested', async () => {
    const { assistant_id: id } = await create();
    const { client } = agent;
    const { thread_id: gone } = await client.threads.create({ metadata: { assistant_id: id } });
    const { thread_id: kept } = await client.threads.create();
    const answer = await agent.ask('DELETE', `/assistants/${id}?delete_threads=true`);
    expect([answer.status, await answer.json()]).toEqual([200, [id]]);
    expect(await readErrorStatus(client.threads.get(gone))).toBe(404);
    expect(await client.threads.get(kept)).toMatchObject({ thread_id: kept });
  });
});

describe('the graph of an assistant', () => {
  it('is drawn, on request with its subgraphs expanded', async () => {
    const { client } = agent;
    const plain = await client.assistants.getGraph('parent');
    expect(plain.nodes.map(({ id }) => id)).toEqual(expect.arrayContaining(['__start__', 'outer', 'child', '__end__']));
    expect(plain.edges).toContainEqual(expect.objectContaining({ source: 'outer', target: 'child' }));
    const opened = (await client.assistants.getGraph('parent', { xray: true })).nodes.map(({ id }) => String(id));
    expect(opened.some((id) => id.includes('inner'))).toBe(true);
    expect(await readErrorStatus(client.assistants.getGraph('parent', { xray: 'deep' as never }))).toBe(422);
  });

  it('returns its schemas and those of its subgraphs', async () => {
    const { client } = agent;
    const schemas = await client.assistants.getSchemas('typed');
    expect(schemas).toMatchObject({ graph_id: 'typed', input_schema: { properties: { topic: { type: 'string' } } } });
    expect(Object.keys(schemas.output_schema?.properties ?? {})).toEqual(['joke']);
    expect(Object.keys(await client.assistants.getSubgraphs('parent'))).toEqual(['child']);
    expect(Object.keys(await client.assistants.getSubgraphs('parent', { namespace: 'child' }))).toEqual(['child']);
    expect(await client.assistants.getSubgraphs('echo')).toEqual({});
  });
});

it.each([
  ['POST', '/assistants', { graph_id: 'none' }, 404, 'GRAPH_NOT_FOUND'],
  ['POST', '/assistants', {}, 422, 'INVALID_REQUEST'],
  ['POST', '/assistants', { graph_id: 'echo', assistant_id: 'x' }, 422, 'INVALID_REQUEST'],
  ['POST', '/assistants', { graph_id: 'echo', metadata: { a: '\0' } }, 422, 'INVALID_REQUEST'],
  ['POST', '/assistants', { graph_id: 'echo', config: { recursion_limit: 0 } }, 422, 'INVALID_REQUEST'],
  ['GET', '/assistants/none', undefined, 404, 'ASSISTANT_NOT_FOUND'],
  ['PATCH', '/assistants/none', {}, 404, 'ASSISTANT_NOT_FOUND'],
  ['PATCH', '/assistants/echo', { graph_id: 'none' }, 404, 'GRAPH_NOT_FOUND'],
  ['DELETE', `/assistants/${randomUUID()}`, undefined, 404, 'ASSISTANT_NOT_FOUND'],
  ['POST', '/assistants/echo/latest', { version: 99 }, 404, 'ASSISTANT_NOT_FOUND'],
  ['POST', '/assistants/search', { limit: 0 }, 422, 'INVALID_REQUEST'],
  ['POST', '/assistants/search', { limit: 1_001 }, 422, 'INVALID_REQUEST'],
  ['POST', '/assistants/search', { sort_by: 'color' }, 422, 'INVALID_REQUEST'],
  ['GET', '/assistants/none/schemas', undefined, 404, 'ASSISTANT_NOT_FOUND'],
] as const)('%s %s %j is %i %s', async (method, path, body, status, code) => {
  const answer = await agent.ask(method, path, body);
  expect([answer.status, await answer.json()]).toMatchObject([status, { code, detail: expect.anything() }]);
});
