import { describe, expect, test } from 'vitest';
import { type EventFilter, toProtocolMessage } from '../../../../pipelines/agents/protocol/protocol-event.ts';
import { protocolMode, type StreamedEvent } from '../../../../pipelines/agents/streams/stream-types.ts';

const contents = {
  metadata: { mode: 'metadata', event: 'metadata', data: { run_id: 'r', graph_id: 'g' } },
  end: { mode: 'end', event: 'end', isEnd: true, data: { status: 'success', graph_id: 'g' } },
  values: { mode: 'values', event: 'values', data: { n: 1 } },
  updates: { mode: 'updates', event: 'updates', data: { step: { n: 1 } } },
  custom: { mode: 'custom', event: 'custom', data: { name: 'named', n: 1 } },
  tools: { mode: 'tools', event: 'tools', data: { event: 'on_tool_start', toolCallId: 'c', name: 't', input: {} } },
  tasks: { mode: 'tasks', event: 'tasks', data: { id: 't', name: 'step' } },
  checkpoints: {
    mode: 'checkpoints',
    event: 'checkpoints',
    data: { checkpoint: { checkpoint_id: 'c' }, metadata: { step: 1, source: 'loop' } },
  },
  messages: { mode: protocolMode, event: 'messages', data: { node: 'step', data: { event: 'message-start' } } },
  'lifecycle of a subgraph': {
    mode: protocolMode,
    event: 'lifecycle',
    data: { data: { event: 'started', graph_name: 'child' } },
  },
  interrupt: { mode: protocolMode, event: 'input.requested', data: { data: { interrupt_id: 'i', value: 1 } } },
  'mode without an equivalent': { mode: 'debug', event: 'debug', data: { step: 1 } },
};

type Name = keyof typeof contents;

/** Returns the channel of the message, if all channels are requested. */
const channelOf: Readonly<Record<Name, string | undefined>> = {
  metadata: 'lifecycle',
  end: 'lifecycle',
  values: 'values',
  updates: 'updates',
  custom: 'custom',
  tools: 'tools',
  tasks: 'tasks',
  checkpoints: 'checkpoints',
  messages: 'messages',
  'lifecycle of a subgraph': 'lifecycle',
  interrupt: 'input',
  'mode without an equivalent': undefined,
};
const channels = ['values', 'updates', 'messages', 'tools', 'lifecycle', 'input', 'checkpoints', 'tasks', 'custom'];

/** Creates an event, and counts how often its data is read. */
function createEvent(name: Name, namespace = '') {
  const { data, ...content } = contents[name];
  const counted = { reads: 0 };
  const event: StreamedEvent = {
    ...{ runId: 'r', attempt: 1, seq: 2, threadSeq: 2, namespace, isEnd: false, createdAtMicros: 1_000, ...content },
    get data() {
      counted.reads += 1;
      return Buffer.from(JSON.stringify(data));
    },
  };
  return { event, counted };
}

describe.each(Object.keys(contents) as Name[])('%s', (name) => {
  const channel = channelOf[name];

  test('is a message of its channel only', () => {
    for (const requested of channels) {
      const { event } = createEvent(name);
      const message = toProtocolMessage(event, [{ channels: [requested] }]);
      if (requested !== channel) expect(message).toBeUndefined();
      else expect(JSON.parse(message!.text)).toMatchObject({ type: 'event', params: { namespace: [], timestamp: 1 } });
    }
  });

  test('is not decoded if all filters exclude it', () => {
    const excluding: EventFilter[] = [
      { channels: channels.filter((each) => each !== channel) },
      { channels, namespaces: [['other']] },
    ];
    const { event, counted } = createEvent(name);
    expect(toProtocolMessage(event, excluding)).toBeUndefined();
    expect(counted.reads).toBe(0);
  });
});

test('a named custom event matches its name and the channel custom', () => {
  const receives = (requested: string, namespaces?: string[][]) =>
    toProtocolMessage(createEvent('custom', 'child:1').event, [{ channels: [requested], namespaces }]) !== undefined;
  expect(receives('custom')).toBe(true);
  expect(receives('custom:named')).toBe(true);
  expect(receives('custom:named', [['child']])).toBe(true);
  expect(receives('custom:named', [['other']])).toBe(false);
  expect(receives('custom:other')).toBe(false);
});

test('a warning is a custom event that no filter excludes', () => {
  const payload = { error: 'EventTooLarge', message: 'large' };
  const event: StreamedEvent = {
    ...{ runId: 'r', attempt: 1, seq: 2, threadSeq: 2, namespace: '', isEnd: false, createdAtMicros: 1_000 },
    ...{ mode: 'warning', event: 'warning', data: Buffer.from(JSON.stringify(payload)) },
  };
  const message = toProtocolMessage(event, [{ channels: ['values'], namespaces: [['child']] }]);
  expect(JSON.parse(message!.text)).toMatchObject({
    method: 'custom',
    params: { namespace: [], data: { name: 'warning', payload } },
  });
});
