import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { describe, expect, it } from 'vitest';
import { readCallMessages, readRunMessages, readThreadMessages } from '../../../pipelines/runs/run-messages.ts';

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
    [
      'the state of a graph with earlier turns',
      { messages: [user] },
      { messages: [{ type: 'human', content: 'before' }, { type: 'human', content: 'hello', id: 'm' }, assistant] },
      [{ type: 'human', content: 'before' }, { type: 'human', content: 'hello', id: 'm' }, assistant],
    ],
    ['completions of OpenAI', { prompt: 'hello' }, { choices: [{ text: 'hi', index: 0 }] }, [user, assistant]],
    ['the AI SDK of Vercel', { prompt: [user] }, { text: 'hi', finishReason: 'stop' }, [user, assistant]],
    ['completions of Anthropic', { prompt: 'hello' }, { completion: 'hi' }, [user, assistant]],
    [
      'Gemini',
      { contents: [{ role: 'user', parts: [{ text: 'hello' }] }] },
      { candidates: [{ content: { role: 'model', parts: [{ text: 'hi' }] } }] },
      [
        { role: 'user', parts: [{ text: 'hello' }] },
        { role: 'model', parts: [{ text: 'hi' }] },
      ],
    ],
    ['an answer that is equal to the question', { messages: [user] }, { message: user }, [user, user]],
    ['no messages', { question: 'why' }, { answer: 'because' }, []],
    ['no objects', 'hello', null, []],
    ['empty lists', { messages: [] }, { choices: [] }, []],
  ])('%s', (_, inputs, outputs, messages) => {
    expect(readRunMessages(inputs, outputs)).toEqual(messages);
  });

  it('with roles of OpenAI and types of LangChain are recognised as equal', () => {
    const outputs = { messages: [{ type: 'human', content: 'hello', name: null }, assistant] };
    expect(readRunMessages({ messages: [user] }, outputs)).toEqual(outputs.messages);
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

describe('the messages of a thread', () => {
  const human = (content: string, id?: string) => ({ type: 'human', content, ...(id && { id }) });
  const ai = (content: string, id?: string) => ({ type: 'ai', content, ...(id && { id }) });
  const turn = (asked: unknown[], state: unknown[]) => ({ inputs: { messages: asked }, outputs: { messages: state } });

  it('are not repeated if each turn returns the whole state', async () => {
    const all = [human('one'), ai('1'), human('two'), ai('2'), human('two'), ai('2')];
    const turns = [2, 4, 6].map((count) =>
      turn([{ role: 'user', content: all[count - 2]?.content }], all.slice(0, count)),
    );
    expect(await readThreadMessages(turns)).toEqual(all);
  });

  it('are recognised by their ids if the graph changes or removes earlier ones', async () => {
    const first = [human('one', 'h1'), ai('1', 'a1'), human('two', 'h2'), ai('2', 'a2')];
    const summary = { type: 'system', content: 'so far', id: 's' };
    const second = [summary, ai('2, edited', 'a2'), human('three', 'h3'), ai('3', 'a3')];
    expect(await readThreadMessages([turn(first.slice(0, 1), first), turn([human('three')], second)])).toEqual([
      ...first,
      summary,
      ...second.slice(2),
    ]);
  });

  it('are kept if each turn returns only its own', async () => {
    const turns = ['1', '2', '3'].map((answer) => turn([human('yes')], [ai(answer)]));
    expect(await readThreadMessages(turns)).toEqual(['1', '2', '3'].flatMap((answer) => [human('yes'), ai(answer)]));
  });

  it('continue after a turn that failed and after one that was resumed', async () => {
    const failed = { inputs: { messages: [human('one')] }, outputs: null };
    const state = [human('one', 'h1'), ai('1', 'a1')];
    const resumed = { inputs: null, outputs: { messages: [...state, ai('2', 'a2')] } };
    expect(await readThreadMessages([failed, turn([human('one')], state), resumed])).toEqual([
      human('one'),
      ai('1', 'a1'),
      ai('2', 'a2'),
    ]);
  });

  it.each([
    ['turns', readThreadMessages],
    ['calls', readCallMessages],
  ])('of many long %s are read without blocking other work', async (_, read) => {
    const all = Array.from({ length: 600 }, (_each, at) => human(`${at}`));
    const turns = all.map((message, at) => turn([message], all.slice(0, at + 1)));
    let isRead = false;
    let eventLoopTurns = 0;
    const startMs = performance.now();
    const reading = read(turns).finally(() => {
      isRead = true;
    });
    for (; !isRead; eventLoopTurns++) await new Promise(setImmediate);
    expect(eventLoopTurns).toBeGreaterThan((performance.now() - startMs) / 100);
    expect((await reading).slice(-1)).toEqual(all.slice(-1));
  });
});
