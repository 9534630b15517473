import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { describe, expect, test, vi } from 'vitest';
import { accepted, buildPostParts, multipart, rootRun, shareWire } from './wire.ts';

const { api, wire } = shareWire();

const read = async (id: string) => JSON.parse((await wire.send('GET', `/runs/${id}`)).text) as Record<string, unknown>;
const send = async (...parts: [string, string, string?][]) => {
  const { status, text } = await wire.multipart(multipart(parts));
  const { rejected = [] } = JSON.parse(text) as { rejected?: { run: string; code: string }[] };
  return { status, rejected: rejected.map(({ run, code }) => `${run} ${code}`) };
};
const patch = ({ id, trace_id, dotted_order }: Record<string, unknown>, values: object): [string, string] => [
  `patch.${id}`,
  JSON.stringify({ id, trace_id, dotted_order, ...values }),
];

describe('the stock client', () => {
  const open = () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {});
    return new Client({ apiUrl: wire.url, apiKey: wire.key, manualFlushMode: true });
  };

  test('patches a run twice in one batch, and posts another run twice', async () => {
    const client = open();
    const [patched, posted, other] = [rootRun(), rootRun(), rootRun()];
    await accepted(wire.multipart(multipart(buildPostParts(patched))));
    const { trace_id, dotted_order } = patched as { trace_id?: string; dotted_order?: string };
    const update = (values: object) => client.updateRun(patched.id, { trace_id, dotted_order, ...values } as object);
    const create = (run: object) => client.createRun(run as Parameters<Client['createRun']>[0]);
    await update({ outputs: { first: true }, error: 'kept' });
    await create(posted);
    await create(other);
    await create({ ...posted, name: 'second', inputs: { second: true } });
    await update({ outputs: { second: true } });
    await client.flush();
    await api.settled();
    expect(await read(patched.id)).toMatchObject({ outputs: { second: true }, error: 'kept' });
    expect(await read(posted.id)).toMatchObject({ name: 'second', inputs: { second: true } });
    expect(await read(other.id)).toMatchObject({ inputs: { q: 1 } });
  });

  test('sends attachments whose names contain quotes, which it does not escape', async () => {
    const client = open();
    const names = ['my "x"', 'my "y"', 'a\\', '"'];
    const run = rootRun();
    const attachments = Object.fromEntries(names.map((name) => [name, ['text/plain', Buffer.from(name)]]));
    await client.createRun({ ...run, attachments } as unknown as Parameters<Client['createRun']>[0]);
    await client.flush();
    await api.settled();
    const links = (await read(run.id)).s3_urls as Record<string, { presigned_url: string }>;
    expect(Object.keys(links).sort()).toEqual(names.map((name) => `attachment.${name}`).sort());
  });

  test('sends an attachment with a line feed in its name: only that is rejected', async () => {
    const client = open();
    const run = rootRun();
    const attachments = { 'a\nb': ['text/plain', Buffer.from('x')], good: ['text/plain', Buffer.from('x')] };
    await client.createRun({ ...run, attachments } as unknown as Parameters<Client['createRun']>[0]);
    await client.flush();
    await api.settled();
    expect(Object.keys((await read(run.id)).s3_urls as object)).toEqual(['attachment.good']);
  });
});

describe('in one body', () => {
  type Parts = [string, string, string?][];
  const a = rootRun();
  const id = a.id;
  const field = (kind: string, name: string, value: string): Parts[number] => [
    `${kind}.${id}.${name}`,
    JSON.stringify(value),
  ];
  const main = buildPostParts(a)[0] as Parts[number];
  test.each<[string, Parts, string[], object]>([
    ['two patches', [main, patch(a, { name: '1' }), patch(a, { name: '2' })], [], { name: '2' }],
    [
      'two patches, each with outputs',
      [main, patch(a, {}), field('patch', 'outputs', '1'), patch(a, {}), field('patch', 'outputs', '2')],
      [],
      { outputs: '2' },
    ],
    [
      'two patches, the first with outputs and the second with an error',
      [main, patch(a, {}), field('patch', 'outputs', '1'), patch(a, {}), field('patch', 'error', '2')],
      [],
      { outputs: '1', error: '2' },
    ],
    [
      'two patches and then outputs',
      [main, patch(a, {}), patch(a, {}), field('patch', 'outputs', '2')],
      [],
      { outputs: '2' },
    ],
    [
      'fields before the patch',
      [main, field('patch', 'outputs', '1'), patch(a, {}), field('patch', 'error', '2'), patch(a, { name: '3' })],
      [],
      { outputs: '1', error: '2', name: '3' },
    ],
    ['two posts', [main, field('post', 'inputs', '1'), main, field('post', 'inputs', '2')], [], { inputs: '2' }],
    [
      'an id in capitals',
      [[`post.${id.toUpperCase()}`, main[1]], field('post', 'inputs', '1'), main, field('post', 'inputs', '2')],
      [],
      { inputs: '2' },
    ],
    [
      'a field twice',
      [main, field('post', 'inputs', '1'), field('post', 'inputs', '2')],
      [`post.${id}.inputs INVALID_MULTIPART`],
      { inputs: '1' },
    ],
    ['a field of another name', [main, field('post', 'color', '1')], [], { name: 'root' }],
    [
      'an invalid patch between two valid ones',
      [main, patch(a, { name: '1' }), patch(a, { name: 7 }), patch(a, { error: '3' })],
      [`${id} INVALID_RUN`],
      { name: '1', error: '3' },
    ],
    [
      'a field with a wrong length',
      [main, patch(a, { name: 'lost' }), [`patch.${id}.outputs`, '{}', 'application/json\r\nContent-Length: 9']],
      [`${id} INVALID_MULTIPART`],
      { name: 'root' },
    ],
    [
      'a name above 1,024 characters',
      [main, [`attachment.${id}.${'n'.repeat(1_000)}`, 'x', 'text/plain']],
      [`attachment.${id}.${'n'.repeat(152)} INVALID_MULTIPART`],
      { name: 'root' },
    ],
  ])('%s', async (_name, parts, rejected, stored) => {
    // Each case gets a run of its own.
    const own = rootRun();
    const rename = (text: string) =>
      text
        .replaceAll(id.toUpperCase(), own.id.toUpperCase())
        .replaceAll(String(a.dotted_order), String(own.dotted_order))
        .replaceAll(id, own.id);
    const answer = await send(
      ...parts.map(([name, text, type]) => [rename(name), rename(text), type] as Parts[number]),
    );
    expect(answer).toEqual({ status: 202, rejected: rejected.map(rename) });
    await api.settled();
    expect(await read(own.id)).toMatchObject(stored);
  });

  test('feedback and an attachment twice: the last one wins', async () => {
    const run = rootRun();
    const feedbackId = randomUUID();
    const feedback = (score: number): [string, string] => [
      `feedback.${feedbackId}`,
      JSON.stringify({ id: feedbackId, run_id: run.id, key: 'twice', score }),
    ];
    const attachment = (text: string): [string, string, string] => [`attachment.${run.id}.notes`, text, 'text/plain'];
    const parts = [...buildPostParts(run), feedback(0.25), attachment('first'), feedback(0.75), attachment('second')];
    expect(await send(...(parts as Parts))).toEqual({ status: 202, rejected: [] });
    await api.settled();
    const { text } = await wire.send('GET', `/feedback/${feedbackId}`);
    expect(JSON.parse(text)).toMatchObject({ score: 0.75 });
    const links = (await read(run.id)).s3_urls as Record<string, { presigned_url: string }>;
    expect(await (await fetch(links['attachment.notes']?.presigned_url ?? '')).text()).toBe('second');
  });
});
