import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { attachmentEvents, feedbackEvents } from '../../../../schemas/topics.ts';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';
import { buildPostParts, multipart, rootRun, Wire } from './wire.ts';

const api = forSuite(() => startApi({ config: { maxRunBytes: 1024 * 1024 } }));
let wire: Wire;
/** Topic and run of every published attachment and feedback. */
const published: string[] = [];

beforeAll(async () => {
  const { log } = api.services.accept;
  const publish = log.publish.bind(log);
  log.publish = (topic, messages) => {
    if (topic === attachmentEvents || topic === feedbackEvents) {
      published.push(...messages.map(({ key }) => `${topic.table} ${key.split(':')[1]}`));
    }
    return publish(topic, messages);
  };
  const { adminKey } = await addOrganization(api.database, 'companions');
  await api.listen();
  wire = new Wire(api.server, adminKey);
});

type Parts = [string, string, string?][];
const attachment = (runId: string, name = 'notes'): Parts[number] => [
  `attachment.${runId}.${name}`,
  'text',
  'text/plain',
];
const feedback = (about: object): Parts[number] => {
  const id = randomUUID();
  return [`feedback.${id}`, JSON.stringify({ id, key: 'correctness', score: 1, ...about })];
};
const send = async (...parts: Parts) => {
  const { status, text } = await wire.multipart(multipart(parts));
  return { status, body: JSON.parse(text) as { code?: string; message?: string; rejected?: { run: string }[] } };
};
const refusedRun = (overrides: object = {}) => rootRun({ dotted_order: undefined, ...overrides });

describe('attachments and feedback of a rejected run', () => {
  test('are rejected with it: 400, and nothing is published', async () => {
    const run = refusedRun();
    const { status, body } = await send(
      ...buildPostParts(run),
      attachment(run.id),
      feedback({ run_id: run.id }),
      feedback({ trace_id: run.id }),
    );
    expect([status, body.code]).toEqual([400, 'ALL_RUNS_INVALID']);
    expect(published.filter((each) => each.includes(run.id))).toEqual([]);
  });

  test.each<[string, number, string, () => Parts]>([
    [
      'whose project does not exist',
      422,
      'PROJECT_UNKNOWN',
      () => buildPostParts(rootRun({ session_id: randomUUID() })),
    ],
    [
      'that is larger than the limit',
      413,
      'RUN_TOO_LARGE',
      () => buildPostParts(rootRun({ inputs: { x: 'x'.repeat(1024 * 1024) } })),
    ],
    [
      'of ten years ago',
      400,
      'ALL_RUNS_INVALID',
      () => buildPostParts(rootRun({ start_time: '2012-01-01T00:00:00Z' })),
    ],
    ['with only separate fields', 400, 'ALL_RUNS_INVALID', () => buildPostParts(rootRun()).slice(1)],
  ])('do not change the response to a run %s', async (_name, status, code, make) => {
    const parts = make();
    const runId = (parts[0]?.[0] ?? '').split('.')[1] ?? '';
    const answer = await send(...parts, attachment(runId), feedback({ run_id: runId }));
    expect([answer.status, answer.body.code]).toEqual([status, code]);
    expect(published.filter((each) => each.includes(runId))).toEqual([]);
  });

  test('are named in the response if other runs are accepted', async () => {
    const [bad, good] = [refusedRun(), rootRun()];
    const { status, body } = await send(
      ...buildPostParts(bad),
      attachment(bad.id),
      ...buildPostParts(good),
      attachment(good.id),
      feedback({ run_id: good.id }),
    );
    expect(status).toBe(202);
    expect(body.rejected?.map(({ run }) => run)).toEqual([bad.id, `attachment.${bad.id}.notes`]);
    expect(body.message).toContain('3 of 5 items were accepted');
    expect(published.filter((each) => each.includes(bad.id))).toEqual([]);
    expect(published.filter((each) => each.includes(good.id)).sort()).toEqual([
      `attachments ${good.id}`,
      `feedback ${good.id}`,
    ]);
  });
});

describe('attachments and feedback are accepted', () => {
  test('with a run if at least one of its events is accepted', async () => {
    const run = rootRun();
    const patch = { id: run.id, trace_id: run.id, dotted_order: 'yesterday' };
    const { status } = await send(
      ...buildPostParts(run),
      [`patch.${run.id}`, JSON.stringify(patch)],
      attachment(run.id),
    );
    expect(status).toBe(202);
    expect(published).toContain(`attachments ${run.id}`);
  });

  test('without their run, which may have arrived before or arrive later', async () => {
    const [run, other] = [randomUUID(), refusedRun()];
    const { status, body } = await send(...buildPostParts(other), attachment(run), feedback({ run_id: run }));
    expect([status, body.message]).toEqual([202, expect.stringContaining('2 of 3 items were accepted')]);
    expect(published.filter((each) => each.includes(run)).sort()).toEqual([`attachments ${run}`, `feedback ${run}`]);
  });
});

test('a rejected run does not create the project that it names', async () => {
  const name = `of a large run ${randomUUID()}`;
  const run = rootRun({ session_name: name, inputs: { x: 'x'.repeat(600 * 1024) } });
  const outputs: Parts[number] = [`post.${run.id}.outputs`, JSON.stringify({ x: 'x'.repeat(600 * 1024) })];
  const answer = await send(...buildPostParts(run), outputs);
  expect([answer.status, answer.body.code]).toEqual([413, 'RUN_TOO_LARGE']);
  const projects = await api.database.query('SELECT FROM projects WHERE name = $1', [name]);
  expect(projects).toEqual([]);
  const small = await send(...buildPostParts(rootRun({ session_name: name })));
  expect(small.status).toBe(202);
  expect(await api.database.query('SELECT FROM projects WHERE name = $1', [name])).toHaveLength(1);
});
