/** The stream of a graph run as the playground reads it. */
import { expect, it } from 'vitest';
import { readEvents } from '../../web/src/api/event-stream.ts';
import { ExactNumber } from '../../web/src/components/values/exact-json.ts';
import { applyEvent, idleRun, type RunView, withPartialMessages } from '../../web/src/screens/agents/graph-run.ts';

/** Sends `text` in chunks of `size` bytes. */
function respond(text: string, size: number): Response {
  const bytes = new TextEncoder().encode(text);
  return new Response(
    new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    }),
  );
}

it.each([1, 2, 3, 7, 1_000])('events are read whatever the chunks: %i bytes', async (size) => {
  const text =
    'event: values\ndata: {"a":1}\nid: 1\n\n: heartbeat\n\ndata: one\ndata: two ü\r\n\r\nid: 3\n\nevent: end\ndata\n\ndata: cut off';
  const events = [];
  for await (const event of readEvents(respond(text, size))) events.push(event);
  expect(events).toEqual([
    { event: 'values', data: '{"a":1}', lastId: '1' },
    { event: 'message', data: 'one\ntwo ü', lastId: '1' },
    { event: 'end', data: '', lastId: '3' },
  ]);
});

it('a connection that breaks is an error', async () => {
  const broken = new Response(
    new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\n\n')),
      pull: (controller) => controller.error(new TypeError('network error')),
    }),
  );
  const events: string[] = [];
  const read = async () => {
    for await (const { data } of readEvents(broken)) events.push(data);
  };
  await expect(read()).rejects.toThrow('network error');
});

const apply = (events: readonly (readonly [string, unknown])[], from: RunView = idleRun) =>
  events.reduce((view, [name, data]) => applyEvent(view, name, data), from);
const part = (content: unknown, more: object = {}) =>
  ['messages', [{ id: 'm1', type: 'AIMessageChunk', content, ...more }, {}]] as const;

it('tokens and the parts of tool calls become messages until the state has them', () => {
  const human = { id: 'm0', type: 'human', content: 'hi' };
  const view = apply([
    ['metadata', { run_id: 'r1' }],
    ['values', { messages: [human] }],
    part('Let me '),
    part([{ type: 'text', text: 'look.' }], { tool_call_chunks: [{ index: 0, name: 'find', args: '{"or' }] }),
    part('', {
      tool_call_chunks: [
        { index: 0, args: 'der":1}' },
        { index: 1, name: 'count', args: '{}' },
      ],
    }),
  ]);
  expect(view.runId).toBe('r1');
  expect(withPartialMessages(view, undefined)).toMatchObject({
    messages: [
      human,
      {
        type: 'ai',
        content: 'Let me look.',
        tool_calls: [
          { name: 'find', args: '{"order":1}' },
          { name: 'count', args: '{}' },
        ],
      },
    ],
  });
  const ended = apply(
    [['values', { messages: [human, { id: 'm1', type: 'ai', content: 'Done.' }] }], part('late')],
    view,
  );
  expect(withPartialMessages(ended, undefined)).toEqual({
    messages: [human, { id: 'm1', type: 'ai', content: 'Done.' }],
  });
});

it('a tool call without arguments has none', () => {
  const message = { id: 'm1', type: 'ai', content: '', tool_calls: [{ name: 'find' }, { name: 'end', args: {} }] };
  expect(withPartialMessages(apply([['messages', [message, {}]]]), undefined)).toMatchObject({
    messages: [{ tool_calls: [{ name: 'find' }, { name: 'end', args: '{}' }] }],
  });
  const [first] = apply([['messages', [message, {}]]]).partial.get('m1')?.tool_calls ?? [];
  expect(first).toEqual({ name: 'find' });
});

it('interrupts are neither state nor steps, and updates and custom events are counted', () => {
  const view = apply([
    ['values', { city: 'Rome' }],
    ['updates', { plan: { days: 3 }, check: null }],
    ['updates', { __interrupt__: [{ value: 'Go?' }] }],
    ['custom', { day: 1 }],
    ['values', { __interrupt__: [{ value: 'Go?' }] }],
  ]);
  expect(view.values).toEqual({ city: 'Rome' });
  expect(view.steps).toEqual([
    { place: 0, name: 'plan', value: { days: 3 } },
    { place: 1, name: 'check', value: null },
    { place: 2, name: 'custom', value: { day: 1 } },
  ]);
  const many = apply(Array.from({ length: 700 }, (_, i) => ['custom', i] as const));
  expect([many.steps.length, many.steps.at(-1)?.place]).toEqual([500, 699]);
});

it('errors are shown in the words of the server; unknown events and data change nothing', () => {
  expect(apply([['error', { error: 'RunError', message: 'no city' }]]).error).toBe('RunError: no city');
  expect(apply([['error', 'broken']]).error).toBe('broken');
  expect(apply([['error', new ExactNumber('9007199254740993')]]).error).toBe('9007199254740993');
  expect(
    apply([
      ['feedback', {}],
      ['messages', [null]],
      ['messages', {}],
      ['updates', []],
      ['metadata', null],
    ]),
  ).toEqual(idleRun);
});
