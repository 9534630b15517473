import { expect, it } from 'vitest';
import { parseAnswer, parseAnswerWithout } from '../../../../pipelines/agents/workers/front/parse-answer.ts';

it.each([
  [
    '{"state": {"values" : {"n": 1.50, "é": "\\u0000\\"}"} , "next": ["a"]}, "more": 1}',
    '{"n": 1.50, "é": "\\u0000\\"}"}',
  ],
  ['{"state":{"next":["a"],"values":[]},"more":1}', '[]'],
  ['{"state":{"next":["a"],"values":null},"more":1}', 'null'],
])('leaves the value at a path as text: %s', (json, text) => {
  const answer = { state: { next: ['a'], values: null }, more: 1 };
  expect(parseAnswerWithout(json, ['state', 'values'])).toEqual({ answer, text });
});

it('accepts an answer without the path', () => {
  expect(parseAnswerWithout('null', ['state', 'values'])).toEqual({ answer: null, text: 'null' });
  expect(parseAnswerWithout('{"state":1}', ['state', 'values'])).toEqual({ answer: { state: 1 }, text: 'null' });
});

it('does not count the value at the path, and refuses others of very many values', () => {
  const many = `[${'{},'.repeat(300_000)}{}]`;
  const tooMany = `[${'1,'.repeat(4_000_000)}1]`;
  const refused = expect.objectContaining({ code: 'WORKER_MESSAGE_TOO_LARGE' });
  expect(parseAnswerWithout(`{"values":${tooMany},"a":1}`, ['values'])).toEqual({
    answer: { values: null, a: 1 },
    text: tooMany,
  });
  expect(() => parseAnswerWithout(`{"values":1,"a":${tooMany}}`, ['values'])).toThrow(refused);
  expect(() => parseAnswer(many)).toThrow(refused);
  expect(parseAnswer(many, 1_000_000)).toHaveLength(300_001);
  expect(parseAnswerWithout(`{"values":[${'{},'.repeat(2_000_000)}1]}`, ['values']).text).toBe('null');
  // One text has one value.
  expect(parseAnswer(JSON.stringify('{'.repeat(300_000)))).toHaveLength(300_000);
});
