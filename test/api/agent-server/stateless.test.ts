import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { expireThreads } from '../../../pipelines/agents/threads/delete-thread.ts';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';
import { all } from './stream-parts.ts';

/** Rows of a run are deleted after its trace was consumed, which happens once a second. */
const withTimeout = { timeout: 20_000 };

/** Runs without a thread, through the stock client. */

const { server, client } = shareDeployedAgents();

async function rowsOf(table: 'runs' | 'threads', threadId: string): Promise<number> {
  const [row] = await server.database.query<{ rows: number }>(
    `SELECT count(*)::int AS rows FROM agents.${table} WHERE deployment_id = $1 AND thread_id = $2`,
    [server.owner.id, threadId],
  );
  return row!.rows;
}

it('are waited for and leave no rows behind', async () => {
  expect(await client.runs.wait(null, 'steps', { input: { steps: 2, text: 'a' } })).toMatchObject({
    log: ['a 1', 'a 2'],
  });
  await expect(client.runs.wait(null, 'misbehave', { input: { how: 'fail' } })).rejects.toThrow('TypeError');
  const rows = () => server.database.query('SELECT FROM agents.threads WHERE hidden');
  await expect.poll(async () => (await rows()).length, withTimeout).toBe(0);
  expect(await server.database.query('SELECT FROM agents.checkpoints')).toEqual([]);
});

it('are streamed and return their location', async () => {
  let made: { run_id: string; thread_id?: string } | undefined;
  const stream = client.runs.stream(null, 'burst', {
    input: { n: 3 },
    streamMode: 'custom',
    onRunCreated: (run) => {
      made = run;
    },
  });
  const events = await all(stream);
  expect(events.map(({ event, data }) => [event, data])).toEqual([
    ['metadata', { run_id: made!.run_id, attempt: 1, graph_id: 'burst' }],
    ...[0, 1, 2].map((i) => ['custom', { i }]),
  ]);
  expect(made!.thread_id).toBeUndefined();
});

it('in the background can be joined on their own thread, which is kept if requested', async () => {
  const run = await client.runs.create(null, 'burst', {
    input: { n: 30, pauseMs: 20 },
    streamMode: 'custom',
    onCompletion: 'keep' as never,
  });
  expect(run).toMatchObject({ kwargs: { temporary: false } });
  const joined = all(client.runs.joinStream(null, run.run_id));
  expect(await client.runs.join(run.thread_id, run.run_id)).toMatchObject({ done: 30 });
  expect((await joined).map(({ event }) => event)).toContain('custom');
  expect(await client.runs.get(run.thread_id, run.run_id)).toMatchObject({ status: 'success' });
  expect(await client.threads.get(run.thread_id)).toMatchObject({ values: { done: 30 } });

  const gone = await client.runs.create(null, 'steps', { input: { steps: 1 } });
  await client.runs.join(gone.thread_id, gone.run_id).catch(() => undefined);
  await expect.poll(() => rowsOf('threads', gone.thread_id), withTimeout).toBe(0);
  await expect(client.threads.get(gone.thread_id)).rejects.toThrow('404');
});

it('are cancelled when their client disconnects, if requested', async () => {
  const started = async (onDisconnect?: 'cancel' | 'continue') => {
    const disconnect = new AbortController();
    let runId = '';
    const stream = client.runs.stream(null, 'steps', {
      input: { steps: 1, pauseMs: 1_500 },
      ...({ onCompletion: 'keep' } as object),
      ...(onDisconnect && { onDisconnect }),
      signal: disconnect.signal,
      onRunCreated: (run) => {
        runId = run.run_id;
      },
    });
    for await (const { event } of stream) if (event === 'metadata') break;
    disconnect.abort();
    return runId;
  };
  const [cancelled, continued, byDefault] = [await started('cancel'), await started('continue'), await started()];
  const statusOf = async (runId: string) => {
    const [row] = await server.database.query<{ status: string }>('SELECT status FROM agents.runs WHERE run_id = $1', [
      runId,
    ]);
    return row!.status;
  };
  await expect.poll(() => statusOf(cancelled), withTimeout).toBe('interrupted');
  for (const runId of [continued, byDefault]) {
    await expect.poll(() => statusOf(runId), withTimeout).toBe('success');
  }
});

it('are created in batches, with the field names that the client does not convert', async () => {
  const runs = await client.runs.createBatch([
    { assistantId: 'steps', input: { steps: 1, text: 'a' }, onCompletion: 'keep' as never, streamMode: 'updates' },
    { assistantId: 'steps', input: { steps: 1, text: 'b' }, onCompletion: 'keep' as never, ifNotExists: 'create' },
  ]);
  expect(runs).toMatchObject([{ kwargs: { stream_mode: ['updates'] } }, { kwargs: { stream_mode: ['values'] } }]);
  const values = await Promise.all(runs.map((run) => client.runs.join(run.thread_id, run.run_id)));
  expect(values).toMatchObject([{ log: ['a 1'] }, { log: ['b 1'] }]);
});

it('have no checkpoints to start from', async () => {
  await expect(client.runs.wait(null, 'steps', { checkpointId: randomUUID() })).rejects.toThrow('404');
});

it('that are resumable can be rejoined for two minutes after their end, then all their rows are deleted', async () => {
  const input = { input: { n: 3 }, stream_mode: 'custom', stream_resumable: true, assistant_id: 'burst' };
  const first = await server.ask('POST', '/runs/stream', input);
  const firstText = await first.text();
  const path = first.headers.get('location')!.split('?')[0]!;
  const runId = path.split('/').at(-2)!;
  const thread = async () => {
    const [row] = await server.database.query<{ thread_id: string; due: boolean }>(
      `SELECT thread_id, expires_at BETWEEN now() + interval '100 s' AND now() + interval '120 s' AS due
       FROM agents.threads JOIN agents.runs USING (deployment_id, thread_id) WHERE run_id = $1 AND hidden`,
      [runId],
    );
    return row;
  };
  await expect.poll(async () => (await thread())?.due, withTimeout).toBe(true);
  const frames = (text: string) =>
    text
      .replaceAll(/^:.*\r?\n/gm, '')
      .split(/\r?\n\r?\n/)
      .filter((frame) => frame.includes('event: '));
  const [metadata, ...rest] = frames(firstText);
  expect(rest).toHaveLength(3);
  const again = await server.ask('GET', path, undefined, { 'last-event-id': /^id: (.*)$/m.exec(metadata!)![1]! });
  expect([again.status, frames(await again.text())]).toEqual([200, rest]);
  const { thread_id: threadId } = (await thread())!;
  await server.database.execute('UPDATE agents.threads SET expires_at = now() WHERE thread_id = $1', [threadId]);
  expect(await expireThreads(server.database, server.owner.id)).toBe(1);
  expect(await Promise.all([rowsOf('runs', threadId), rowsOf('threads', threadId)])).toEqual([0, 0]);
  expect((await server.ask('GET', path)).status).toBe(404);
});

it('of a batch are created together, so that a client can repeat a batch that failed', async () => {
  const { database, ask } = server;
  const number = (run: { readonly metadata: object }) => run.metadata;
  const batch = [0, 1, 2].map((n) => ({
    assistant_id: 'echo',
    input: {},
    afterSeconds: 3_000,
    metadata: { batch: n },
  }));
  const readRuns = () =>
    database.query<{ metadata: object }>(
      "SELECT metadata FROM agents.runs WHERE metadata ? 'batch' ORDER BY queue_position",
    );
  await database.execute(`CREATE FUNCTION refuse_run() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '53200'; END $$`);
  await database.execute(`CREATE TRIGGER refuse_run BEFORE INSERT ON agents.runs FOR EACH ROW
    WHEN (NEW.metadata @> '{"batch": 2}') EXECUTE FUNCTION refuse_run()`);
  const failed = await ask('POST', '/runs/batch', batch);
  await database.execute('DROP FUNCTION refuse_run CASCADE');
  expect([failed.status, await readRuns()]).toEqual([503, []]);
  const made = (await (await ask('POST', '/runs/batch', batch)).json()) as { metadata: object }[];
  expect(made.map(number)).toMatchObject(batch.map(number));
  expect((await readRuns()).map(number)).toMatchObject(batch.map(number));
});
