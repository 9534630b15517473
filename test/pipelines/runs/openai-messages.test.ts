import { describe, expect, it } from 'vitest';
import { readMessage, toOpenAiMessages } from '../../../pipelines/runs/openai-messages.ts';

/** Names that every object has, which must not be found among the known roles. */
const inheritedNames = ['constructor', 'toString', 'valueOf', 'hasOwnProperty', '__proto__'];

describe('messages whose roles are names of inherited members', () => {
  it.each(inheritedNames)('keeps the role %s', (role) => {
    expect(toOpenAiMessages({ messages: [{ role, content: 'hello' }] }, 'user')).toEqual([{ role, content: 'hello' }]);
  });

  it.each(inheritedNames)('does not take the type %s for a message', (type) => {
    expect(readMessage({ type, content: 'hello' })).toBeUndefined();
    expect(readMessage({ type: 'constructor', id: ['langchain', type], kwargs: { content: 'hello' } })).toBeUndefined();
    expect(toOpenAiMessages({ a: { type, content: 'hello' } }, 'user')).toEqual([
      { role: 'user', content: JSON.stringify({ type, content: 'hello' }) },
    ]);
  });
});

it('values that are nested deeper than JSON.stringify supports become a sign of omission', () => {
  const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)) as unknown;
  expect(toOpenAiMessages({ deep }, 'user')).toEqual([{ role: 'user', content: '…' }]);
  const call = { type: 'ai', content: '', tool_calls: [{ id: '1', name: 'tool', args: deep }] };
  expect(readMessage(call)).toMatchObject({ tool_calls: [{ function: { name: 'tool', arguments: '…' } }] });
});
