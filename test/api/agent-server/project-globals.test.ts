/**
 * Globals that LangChain's packages use in the processes of a project: a logger, and access to the server that runs the
 * project.
 */

import { describe, expect, it } from 'vitest';
import { withFreePort } from '../../../infra/embedded/free-port.ts';
import { createProjectLogger } from '../../../pipelines/agents/workers/child/project-globals.ts';
import { forSuite } from '../../for-suite.ts';
import { addKey } from '../start-api.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() =>
  withFreePort((agentsPort) => startAgentServer({ project: 'inside', config: { agentsPort } })),
);

describe('new Client() without a URL', () => {
  it('reaches the own server from a graph, with the key that the graph sets', async () => {
    const answer = await agent.client.runs.wait(null, 'calling', { input: { key: agent.owner.adminKey } });
    expect(answer).toMatchObject({ graphs: ['calling', 'configured', 'steps'] });
  });

  it('does not have the permissions of the server', async () => {
    await expect(agent.client.runs.wait(null, 'calling', { input: { key: 'unknown' } })).rejects.toThrow('HTTP 401');
  });

  it('uses the permissions of the request in an app, also if requests share one client', async () => {
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
    const callers = Array.from({ length: 60 }, (_, index) => index % 3);
    const answers = await Promise.all(
      callers.map((caller) => ask([undefined, agent.owner.adminKey, other.key][caller])),
    );
    for (const [index, caller] of callers.entries()) {
      if (caller === 0) expect(answers[index]?.error).toContain('HTTP 401');
      else expect(answers[index]).toEqual({ user: caller === 1 ? agent.owner.userId : other.userId });
    }
  });
});

describe('the project logger', () => {
  const captureLog = (log: (logger: ReturnType<typeof createProjectLogger>) => unknown) => {
    const lines: string[] = [];
    log(createProjectLogger((line) => lines.push(line)));
    expect(lines).toHaveLength(1);
    expect(lines[0]?.split('\n')).toHaveLength(2);
    return JSON.parse(lines[0] as string) as Record<string, unknown>;
  };

  it('writes one JSON line per call', () => {
    expect(captureLog((to) => to.info('two\nlines', { a: 1 }, { b: 2 }))).toEqual({
      ...{ level: 'info', message: 'two\nlines', a: 1, b: 2 },
    });
    expect(captureLog((to) => to.warn({ message: 'from an object', c: 3 }))).toEqual({
      ...{ level: 'warn', message: 'from an object', c: 3 },
    });
    expect(captureLog((to) => to.error(new Error('broken'))).message).toContain('Error: broken');
  });

  it('writes values that JSON cannot represent, and supports chaining', () => {
    const circle: Record<string, unknown> = {};
    circle.self = circle;
    expect(captureLog((to) => to.silly('round', circle)).meta).toContain('Circular');
    expect(captureLog((to) => to.http('big', { n: 1n })).meta).toContain('1n');
    const logger = createProjectLogger(() => undefined);
    expect(logger.verbose('a').debug('b')).toBe(logger);
  });
});
