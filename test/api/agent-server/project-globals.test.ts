/** What LangChain's packages find in the processes of a project: a logger, and the way to the own server. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { onFreePort } from '../../../infra/embedded/free-port.ts';
import { projectLogger } from '../../../pipelines/agents/workers/project-globals.ts';
import { addKey } from '../start-api.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

let agent: AgentServerUnderTest;
beforeAll(async () => {
  agent = await onFreePort((agentsPort) => startAgentServer({ project: 'inside', config: { agentsPort } }));
}, 120_000);
afterAll(() => agent?.close());

describe('new Client() without a URL', () => {
  it('reaches the own server from a graph, with the key that the graph gives it', async () => {
    const answer = await agent.client.runs.wait(null, 'calling', { input: { key: agent.owner.adminKey } });
    expect(answer).toMatchObject({ graphs: ['calling', 'configured', 'steps'] });
  });

  it('has no rights of the server', async () => {
    await expect(agent.client.runs.wait(null, 'calling', { input: { key: 'unknown' } })).rejects.toThrow('HTTP 401');
  });

  it('has in an app the rights of the request, also where many share one client', async () => {
    const ask = async (key?: string) => {
      const answer = await fetch(`${agent.url}/own/user`, { headers: key === undefined ? {} : { 'x-api-key': key } });
      return (await answer.json()) as { user?: string; error?: string };
    };
    const userId = crypto.randomUUID();
    const { id: organizationId } = agent.owner;
    await agent.database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
      ...[userId, organizationId, 'other@example.test'],
    ]);
    const other = { userId, key: await addKey({ database: agent.database, organizationId, userId }) };
    const asked = Array.from({ length: 60 }, (_, place) => place % 3);
    const answers = await Promise.all(asked.map((who) => ask([undefined, agent.owner.adminKey, other.key][who])));
    for (const [place, who] of asked.entries()) {
      if (who === 0) expect(answers[place]?.error).toContain('HTTP 401');
      else expect(answers[place]).toEqual({ user: who === 1 ? agent.owner.userId : other.userId });
    }
  });
});

describe('the logger of a project', () => {
  const logged = (log: (logger: ReturnType<typeof projectLogger>) => unknown) => {
    const lines: string[] = [];
    log(projectLogger((line) => lines.push(line)));
    expect(lines).toHaveLength(1);
    expect(lines[0]?.split('\n')).toHaveLength(2);
    return JSON.parse(lines[0] as string) as Record<string, unknown>;
  };

  it('writes one line of JSON for each call', () => {
    expect(logged((to) => to.info('two\nlines', { a: 1 }, { b: 2 }))).toEqual({
      ...{ level: 'info', message: 'two\nlines', a: 1, b: 2 },
    });
    expect(logged((to) => to.warn({ message: 'from an object', c: 3 }))).toEqual({
      ...{ level: 'warn', message: 'from an object', c: 3 },
    });
    expect(logged((to) => to.error(new Error('broken'))).message).toContain('Error: broken');
  });

  it('writes what JSON cannot say, too, and can be chained', () => {
    const circle: Record<string, unknown> = {};
    circle.self = circle;
    expect(logged((to) => to.silly('round', circle)).meta).toContain('Circular');
    expect(logged((to) => to.http('big', { n: 1n })).meta).toContain('1n');
    const logger = projectLogger(() => undefined);
    expect(logger.verbose('a').debug('b')).toBe(logger);
  });
});
