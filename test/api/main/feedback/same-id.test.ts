import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
let key: string;

beforeAll(async () => {
  key = (await addOrganization(api.database, 'moved')).adminKey;
});

async function makeRun(): Promise<string> {
  const id = randomUUID();
  const run = { id, name: 'run', run_type: 'chain', session_name: 'moved', inputs: {}, start_time: Date.now() };
  expect((await api.ask(key, 'POST', '/runs', run)).status).toBe(202);
  return id;
}

const part = (name: string, json: object) =>
  `--cut\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(json)}\r\n`;

function post(...parts: string[]) {
  const headers = { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' };
  return api.server.inject({
    method: 'POST',
    url: '/runs/multipart',
    headers,
    payload: `${parts.join('')}--cut--\r\n`,
  });
}

it('feedback is replaced by the same id in a multipart body, also under another run', async () => {
  const [id, first, second] = [randomUUID(), await makeRun(), await makeRun()];
  const build = (runId: string, score: number) => part(`feedback.${id}`, { id, run_id: runId, key: 'moved', score });
  const readScores = async () => {
    const { body } = await api.ask(key, 'POST', '/runs/query', {
      id: [first, second],
      select: ['id', 'feedback_stats'],
    });
    const stats = new Map<string, { moved?: { n: number; avg: number } } | null>(
      body.runs.map((run: { id: string; feedback_stats: object | null }) => [run.id, run.feedback_stats]),
    );
    return [first, second].map((runId) => stats.get(runId)?.moved?.avg);
  };
  expect((await post(build(first, 1))).statusCode).toBe(202);
  expect((await post(build(second, 2))).statusCode).toBe(202);
  expect(await readScores()).toEqual([undefined, 2]);
  // In one body, the last one wins. A repeated request changes nothing.
  for (let time = 0; time < 2; time++) expect((await post(build(second, 3), build(first, 4))).statusCode).toBe(202);
  expect(await readScores()).toEqual([4, undefined]);
  expect((await api.ask(key, 'GET', `/feedback?run=${first}&run=${second}`)).body).toMatchObject([{ id, score: 4 }]);
  expect((await api.ask(key, 'PATCH', `/feedback/${id}`, { comment: 'c' })).body).toMatchObject({
    run_id: first,
    score: 4,
  });
  expect((await api.ask(key, 'DELETE', `/feedback/${id}`)).status).toBe(200);
  expect(await readScores()).toEqual([undefined, undefined]);
  expect((await api.ask(key, 'GET', `/feedback/${id}`)).status).toBe(404);
});

it('feedback without times, as the JavaScript client sends it, does not undo a newer change if it is sent again', async () => {
  const first = { id: randomUUID(), run_id: randomUUID(), key: 'k', score: 1 };
  const send = async (members: object) => (await api.ask(key, 'POST', '/feedback', members)).body;
  const change = (members: object) => api.ask(key, 'PATCH', `/feedback/${first.id}`, members);
  await send(first);
  await change({ comment: 'changed' });
  expect(await send(first)).toMatchObject({ score: 1, comment: 'changed' });
  await change({ value: 'v' });
  expect((await api.ask(key, 'GET', `/feedback/${first.id}`)).body).toMatchObject({ value: 'v', comment: 'changed' });
  // A user who presses the buttons of a page up, down and up again, or sends deleted feedback again, means it.
  expect(await send({ ...first, score: 0 })).toMatchObject({ score: 0, comment: null });
  expect(await send(first)).toMatchObject({ score: 1, comment: null });
  await api.ask(key, 'DELETE', `/feedback/${first.id}`);
  await send(first);
  expect((await change({ comment: 'again' })).body).toMatchObject({ score: 1, comment: 'again' });
});
