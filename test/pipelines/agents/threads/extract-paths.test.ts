import { describe, expect, it } from 'vitest';
import { checkPaths, extractPaths } from '../../../../pipelines/agents/threads/search-threads.ts';
import type { Thread } from '../../../../pipelines/agents/threads/thread.ts';

const thread = {
  thread_id: 'hidden',
  values: { messages: [{ content: 'first' }, { content: 'last', parts: [[1, 2]] }], 'a-b': 1, none: null },
  metadata: { graph_id: 'echo' },
  config: { configurable: { user: 'u' } },
  interrupts: { task: [{ value: 'go?' }] },
} as unknown as Thread;

describe('paths', () => {
  it.each([
    ['values.messages[-1].content', 'last'],
    ['values.messages[0].content', 'first'],
    ['values.messages[1].parts[0][-2]', 1],
    ['values.a-b', 1],
    ['values.none', null],
    ['values.messages[7].content', null],
    ['values.messages.length', null],
    ['values.toString', null],
    ['values.__proto__', null],
    ['values.messages[-1].content[0]', null],
    ['metadata.graph_id', 'echo'],
    ['config.configurable', { user: 'u' }],
    ['interrupts.task[0].value', 'go?'],
  ])('%s extracts %j', (path, expected) => {
    expect(() => checkPaths({ it: path })).not.toThrow();
    expect(extractPaths(thread, { it: path })).toEqual({ it: expected });
  });

  it.each(['', 'thread_id', 'valuesx', 'values.', 'values..a', 'values[x]', 'values[1', 'values.a]', 'secrets.a'])(
    'refuses the path %j and names it',
    (path) => {
      expect(() => checkPaths({ good: 'values.a', bad: path })).toThrow(
        expect.objectContaining({
          code: 'INVALID_REQUEST',
          fields: [{ loc: ['body', 'extract', 'bad'], msg: expect.any(String), type: 'path' }],
        }),
      );
    },
  );
});
