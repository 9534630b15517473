import { describe, expect, test } from 'vitest';
import { readUsage } from '../../../pipelines/ingest/accept/usage-of-run.ts';
import type { RunValues } from '../../../pipelines/ingest/run-event/run-event.ts';

const usage = { input_tokens: 10, output_tokens: 4, total_tokens: 14, input_token_details: { cache_read: 8 } };
const message = { content: 'hi', usage_metadata: usage };
const constructorFields = { lc: 1, type: 'constructor', id: ['langchain', 'schema', 'messages', 'AIMessage'] };

function readTokens(outputs: unknown, extra: unknown = {}): unknown[] {
  const values: RunValues = {
    outputs: Buffer.from(` ${JSON.stringify(outputs, null, 1)} `),
    extra: Buffer.from(JSON.stringify(extra)),
  };
  readUsage(values);
  const details = values.usageDetails as Buffer | undefined;
  return [values.promptTokens, values.completionTokens, values.totalTokens, details?.toString()];
}

const found = [10, 4, 14, '{"prompt_token_details":{"cache_read":8}}'];
const none = [undefined, undefined, undefined, undefined];

describe('the usage of a model call', () => {
  test.each([
    ['the outputs', { text: 'hi', usage_metadata: usage }],
    // LangChain before 1.0, which sends neither metadata nor llm_output with usage when it streams.
    [
      'a generation of LangChain',
      { generations: [[{ text: 'hi', message: { ...constructorFields, kwargs: message } }]], llm_output: null },
    ],
    ['a generation in one list', { generations: [{ message: { ...constructorFields, kwargs: message } }] }],
    ['a message as a member, as the Python SDK serialises it', { score: [1], message }],
    ['a response as a member, with its message', { response: { message: { content: 'hi' }, usage_metadata: usage } }],
    ['a returned message, as the JavaScript SDK serialises it', { outputs: { ...constructorFields, kwargs: message } }],
  ])('is found in %s', (_place, outputs) => {
    expect(readTokens(outputs)).toEqual(found);
  });

  test.each([
    ['Chat Completions', 'prompt_tokens', 'completion_tokens'],
    ['Responses', 'input_tokens', 'output_tokens'],
  ])('has the details of a response of OpenAI (%s)', (_api, input, output) => {
    const response = {
      usage: {
        [input]: 10,
        [output]: 4,
        total_tokens: 14,
        [`${input}_details`]: { cached_tokens: 8, audio_tokens: 0 },
        [`${output}_details`]: { reasoning_tokens: 3, accepted_prediction_tokens: 1, audio_tokens: 1e300 },
      },
    };
    const details = '{"prompt_token_details":{"cache_read":8},"completion_token_details":{"reasoning":3}}';
    expect(readTokens(response)).toEqual([10, 4, 14, details]);
  });

  test('is that of the first generation, because candidates repeat it', () => {
    const candidate = (tokens: number) => ({ message: { kwargs: { usage_metadata: { input_tokens: tokens } } } });
    expect(readTokens({ generations: [[candidate(3), candidate(5)]] }).slice(0, 1)).toEqual([3]);
  });

  test('is that of the metadata, then that of the message with its details, then that of the response', () => {
    const outputs = {
      llm_output: { token_usage: { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 } },
      generations: [[{ message: { kwargs: message } }]],
    };
    expect(readTokens(outputs, { metadata: { usage_metadata: { input_tokens: 1 } } })[0]).toBe(1);
    expect(readTokens(outputs)).toEqual(found);
    expect(readTokens({ ...outputs, generations: [[{ text: 'hi' }]] }).slice(0, 3)).toEqual([2, 1, 3]);
  });

  test.each([{}, { input_tokens: null, output_tokens: null }])(
    'is that of the response beside an empty one',
    (empty) => {
      const token_usage = { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 };
      const outputs = {
        generations: [[{ message: { kwargs: { usage_metadata: empty } } }]],
        llm_output: { token_usage },
      };
      expect(readTokens(outputs).slice(0, 3)).toEqual([2, 1, 3]);
      expect(readTokens({ ...outputs, usage_metadata: empty }).slice(0, 3)).toEqual([2, 1, 3]);
      expect(readTokens(outputs, { metadata: { usage_metadata: empty } }).slice(0, 3)).toEqual([2, 1, 3]);
    },
  );

  test.each([
    [{ cache_creation_input_tokens: 7 }, { cache_creation: 7 }],
    [{ cache_creation_input_tokens: 7, cache_creation: {} }, { cache_creation: 7 }],
    [
      {
        cache_creation_input_tokens: 7,
        cache_creation: { ephemeral_5m_input_tokens: 3, ephemeral_1h_input_tokens: 4 },
      },
      { ephemeral_5m_input_tokens: 3, ephemeral_1h_input_tokens: 4 },
    ],
  ])('of a response of Anthropic includes the tokens of the cache', (written, kinds) => {
    const response = { usage: { input_tokens: 10, output_tokens: 4, cache_read_input_tokens: 5, ...written } };
    const details = JSON.stringify({ prompt_token_details: { cache_read: 5, ...kinds } });
    expect(readTokens(response)).toEqual([22, 4, 26, details]);
    const uncached = { usage: { input_tokens: 10, output_tokens: 4, cache_read_input_tokens: 0 } };
    expect(readTokens(uncached)).toEqual([10, 4, 14, undefined]);
    // Providers that state a total count these tokens among the input tokens.
    expect(readTokens({ usage: { ...response.usage, total_tokens: 14 } }).slice(0, 3)).toEqual([10, 4, 14]);
  });

  test.each<[string, string, unknown]>([
    [
      'leave out numbers that are no counts',
      '{"cache_read":5,"audio":1.5,"a":-1,"b":1e20,"c":100000000001}',
      { cache_read: 5 },
    ],
    ['leave out numbers as text', '{"cache_read":"5","audio":"1e1"}', {}],
    ['leave out large numbers in lists', '{"cache_read":5,"other":[1e20,7]}', { cache_read: 5, other: [null, 7] }],
    [
      'replace lone surrogates',
      '{"cache_read":5,"other":{"\\ud800":"\\udc00\\\\ud800"}}',
      { cache_read: 5, other: { '\ufffd': '\ufffd\\ud800' } },
    ],
    ['keep pairs of surrogates', '{"other":{"\\ud83d\\ude00":1}}', { other: { '😀': 1 } }],
    // langchain-anthropic before March 2026 states tokens that are written to the cache in total and by lifetime.
    [
      'count tokens that are written to the cache once',
      '{"cache_read":1,"cache_creation":7,"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4}',
      { cache_read: 1, ephemeral_5m_input_tokens: 3, ephemeral_1h_input_tokens: 4 },
    ],
    [
      'keep tokens that are written to the cache without a lifetime',
      '{"cache_creation":7,"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":null}',
      { cache_creation: 7, ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: null },
    ],
    [
      'keep a count of the others beside those with a lifetime',
      '{"cache_creation":7,"ephemeral_5m_input_tokens":3}',
      { cache_creation: 7, ephemeral_5m_input_tokens: 3 },
    ],
  ])('has details that %s', (_name, written, expected) => {
    const outputs = Buffer.from(`{"usage_metadata":{"input_tokens":10,"input_token_details":${written}}}`);
    const values: RunValues = { outputs };
    readUsage(values);
    expect(JSON.parse(String(values.usageDetails))).toEqual({ prompt_token_details: expected });
  });

  test('has no negative costs, which would lower sums', () => {
    const usage_metadata = {
      ...{ input_tokens: 1, input_cost: -1, output_cost: '0.5', input_cost_details: { cache_read: -1, audio: 0.25 } },
      output_cost_details: { reasoning: '-0.1', audio: '0.5' },
    };
    const values: RunValues = { outputs: Buffer.from(JSON.stringify({ usage_metadata })) };
    readUsage(values);
    expect(values).toMatchObject({ promptTokens: 1, completionCost: '0.5', totalCost: '0.5' });
    expect(values.promptCost).toBeUndefined();
    expect(JSON.parse(String(values.usageDetails))).toEqual({
      prompt_cost_details: { audio: 0.25 },
      completion_cost_details: { audio: '0.5' },
    });
    const total: RunValues = { outputs: Buffer.from('{"usage_metadata":{"total_cost":-5e-9}}') };
    readUsage(total);
    expect(total.totalCost).toBeUndefined();
  });

  test('has no counts whose sums would exceed 64 bits', () => {
    const hostile = { input_tokens: Number.MAX_SAFE_INTEGER, output_tokens: 1e12, total_tokens: 1e11 };
    expect(readTokens({ usage_metadata: hostile })).toEqual([undefined, undefined, 1e11, undefined]);
  });

  test.each([
    ['text that mentions it', { text: '"usage_metadata"', message: 'usage_metadata' }],
    ['a value that is not an object', { generations: [[{ message: { kwargs: { usage_metadata: 5 } } }]] }],
    ['an empty list', { generations: [], usage_metadata: null }],
    ['a list of outputs', [message]],
  ])('is not found in %s', (_place, outputs) => {
    expect(readTokens(outputs)).toEqual(none);
  });
});
