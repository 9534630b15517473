import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { describe, expect, it } from 'vitest';
import { readRunMessages } from '../../../pipelines/runs/run-messages.ts';

const user = { role: 'user', content: 'hello' };
const assistant = { role: 'assistant', content: 'hi' };
const serialised = (message: object) => JSON.parse(JSON.stringify(message)) as object;

describe('the messages of a run', () => {
  it.each<[string, unknown, unknown, unknown[]]>([
    [
      'chat completions of OpenAI',
      { messages: [user] },
      { choices: [{ message: assistant }, { message: user }] },
      [user, assistant],
    ],
    ['a message in the outputs', { messages: [user] }, { message: assistant }, [user, assistant]],
    [
      'responses of OpenAI',
      { input: 'hello' },
      { output: [{ type: 'message', ...assistant }] },
      [user, { type: 'message', ...assistant }],
    ],
    [
      'Anthropic',
      { messages: [user] },
      { role: 'assistant', content: [{ type: 'text', text: 'hi' }] },
      [user, { role: 'assistant', content: [{ type: 'text', text: 'hi' }] }],
    ],
    [
      'OpenTelemetry',
      { messages: [{ role: 'user', parts: [{ type: 'text', content: 'hello' }] }] },
      { messages: [{ role: 'assistant', parts: [{ type: 'text', content: 'hi' }], finish_reason: 'stop' }] },
      [
        { role: 'user', parts: [{ type: 'text', content: 'hello' }] },
        { role: 'assistant', parts: [{ type: 'text', content: 'hi' }], finish_reason: 'stop' },
      ],
    ],
    [
      'serialised messages of LangChain',
      { messages: [[serialised(new SystemMessage('be brief')), serialised(new HumanMessage('hello'))]] },
      { generations: [[{ text: 'hi', message: serialised(new AIMessage('hi')) }]] },
      [{ role: 'system', content: 'be brief' }, user, assistant],
    ],
    ['texts of LangChain', { prompts: ['hello'] }, { generations: [[{ text: 'hi' }]] }, [user, assistant]],
    [
      'pairs of LangChain',
      {
        messages: [
          ['human', 'hello'],
          ['ai', 'hi'],
        ],
      },
      {},
      [user, assistant],
    ],
    [
      'dictionaries of LangChain',
      { messages: [{ type: 'human', content: 'hello' }] },
      { messages: [{ type: 'ai', content: 'hi' }] },
      [
        { type: 'human', content: 'hello' },
        { type: 'ai', content: 'hi' },
      ],
    ],
    [
      'the state of a graph, which repeats its input',
      { messages: [user] },
      { messages: [user, assistant], steps: 1 },
      [user, assistant],
    ],
    ['no messages', { question: 'why' }, { answer: 'because' }, []],
    ['no objects', 'hello', null, []],
    ['empty lists', { messages: [] }, { choices: [] }, []],
  ])('%s', (_, inputs, outputs, messages) => {
    expect(readRunMessages(inputs, outputs)).toEqual(messages);
  });

  it('keep the calls of tools', () => {
    const call = { id: 'c', name: 'search', args: { query: 'x' } };
    const messages = [
      new AIMessage({ content: '', tool_calls: [call] }),
      new ToolMessage({ content: 'found', tool_call_id: 'c' }),
    ];
    expect(readRunMessages({ messages: [messages.map(serialised)] }, {})).toEqual([
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'search', arguments: '{"query":"x"}' } }],
      },
      { role: 'tool', content: 'found', tool_call_id: 'c' },
    ]);
  });
});
