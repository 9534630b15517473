import { ChatPromptTemplate, MessagesPlaceholder, PromptTemplate } from '@langchain/core/prompts';
import { describe, expect, it } from 'vitest';
import { listPromptVariables, renderPrompt } from '../../../pipelines/prompts/render-prompt.ts';

const serialise = (prompt: object) => JSON.parse(JSON.stringify(prompt)) as Record<string, unknown>;
const chat = serialise(
  ChatPromptTemplate.fromMessages([
    ['system', 'Be {mood}. {{json}}'],
    new MessagesPlaceholder('history'),
    ['human', '{question}'],
    ['ai', 'Well,'],
  ]),
);

describe('a prompt', () => {
  it('lists its variables', () => {
    expect(listPromptVariables(chat)).toEqual([
      { name: 'mood', required: true },
      { name: 'history', required: false },
      { name: 'question', required: true },
    ]);
    expect(listPromptVariables({ template: 'Hi {name}, {name}' })).toEqual([{ name: 'name', required: true }]);
    expect(listPromptVariables({ any: 'json' })).toEqual([]);
  });

  it('is filled in', () => {
    expect(renderPrompt(chat, { mood: 'kind', question: 'Why?' })).toEqual([
      { role: 'system', text: 'Be kind. {json}' },
      { role: 'user', text: 'Why?' },
      { role: 'assistant', text: 'Well,' },
    ]);
    expect(renderPrompt(chat, { mood: 'kind', question: 'Why?', history: 'Before' })[1]).toEqual({
      role: 'user',
      text: 'Before',
    });
    const sequence = {
      kwargs: { first: serialise(PromptTemplate.fromTemplate('Hi {name}')), last: { kwargs: { model: 'm' } } },
    };
    expect(renderPrompt(sequence, { name: 'Ada' })).toEqual([{ role: 'user', text: 'Hi Ada' }]);
    const mustache = { kwargs: { template: 'Hi {{name}}', template_format: 'mustache' } };
    expect(renderPrompt(mustache, { name: '<b>' })).toEqual([{ role: 'user', text: 'Hi <b>' }]);
    expect(renderPrompt({ messages: [{ role: 'system', content: 'Plain' }] }, {})).toEqual([
      { role: 'system', text: 'Plain' },
    ]);
    expect(renderPrompt({ any: 'json' }, {})).toEqual([{ role: 'user', text: '{"any":"json"}' }]);
  });

  it('needs all values, and a valid template', () => {
    expect(() => renderPrompt(chat, { mood: 'kind' })).toThrow('The prompt needs a value for question.');
    expect(() => renderPrompt(chat, { mood: 'kind', toString: 'x' })).toThrow('question');
    expect(() => renderPrompt({ template: 'Hi {name' }, {})).toThrow('The template of the prompt is not valid.');
  });

  it('repeats no value beyond the limit of its messages', () => {
    const values = { x: 'y'.repeat(20_000) };
    const tooLong = 'The messages of the prompt have more than 16777216 characters.';
    expect(() => renderPrompt({ template: '{x}'.repeat(2_000) }, values)).toThrow(tooLong);
    const mustache = { template: '{{x}}'.repeat(2_000), template_format: 'mustache' };
    expect(() => renderPrompt(mustache, values)).toThrow(tooLong);
    const placeholder = { id: ['MessagesPlaceholder'], kwargs: { variable_name: 'x' } };
    expect(() => renderPrompt({ messages: Array(2_000).fill(placeholder) }, values)).toThrow(tooLong);
    expect(renderPrompt({ template: '{x}'.repeat(800) }, values)[0]?.text).toHaveLength(16_000_000);
  });

  it('takes no quadratic time for many variables, parts and values', () => {
    const names = Array.from({ length: 30_000 }, (_, at) => `v${at}`);
    const partial_variables = Object.fromEntries(names.map((name) => [name, 'x']));
    const template = names.slice(0, 4_000).map((name) => `{w${name}}{${name}}`);
    const startMs = performance.now();
    expect(listPromptVariables({ kwargs: { template: template.join(''), partial_variables } })).toHaveLength(4_000);
    const messages = names
      .slice(0, 3_000)
      .map((name) => ({ kwargs: { prompt: { kwargs: { template: `{${name}}` } } } }));
    expect(renderPrompt({ kwargs: { messages, partial_variables } }, {})).toHaveLength(3_000);
    expect(performance.now() - startMs).toBeLessThan(3_000);
  });

  it('is plain text if its templates have very many variables', () => {
    const template = '{a}'.repeat(10_001);
    expect(listPromptVariables({ template })).toEqual([]);
    expect(renderPrompt({ template }, {})).toEqual([{ role: 'user', text: template }]);
    expect(listPromptVariables({ template: '{a}'.repeat(10_000) })).toHaveLength(1);
    // Escaped braces are no variables.
    const [message] = renderPrompt({ template: `${'{{"a":1}}'.repeat(6_000)}{a}` }, { a: 'x' });
    expect(message?.text).toBe(`${'{"a":1}'.repeat(6_000)}x`);
  });

  it('is plain text if its mustache templates are large or have very long white space', () => {
    const mustache = (template: string) => ({ template, template_format: 'mustache' });
    for (const template of [`{{a${' '.repeat(60_000)}b`, `{{a}}${'x'.repeat(70_000)}`, `{{a}}${'\n '.repeat(150)}`]) {
      const startMs = performance.now();
      expect(listPromptVariables(mustache(template))).toEqual([]);
      expect(renderPrompt(mustache(template), {})).toEqual([{ role: 'user', text: template }]);
      expect(performance.now() - startMs).toBeLessThan(1_000);
    }
    const message = { kwargs: { prompt: { kwargs: mustache(`{{a}}${'x'.repeat(40_000)}`) } } };
    expect(listPromptVariables({ messages: [message] })).toHaveLength(1);
    expect(listPromptVariables({ messages: [message, message] })).toEqual([]);
    expect(listPromptVariables({ template: `{a}${' '.repeat(70_000)}` })).toHaveLength(1);
  });

  it('ignores roles and classes that are not text', () => {
    const messages = [{ role: { toString: 1 } }, { id: [{ toString: 1 }] }, { id: [1], role: 'system', content: 'x' }];
    expect(listPromptVariables({ kwargs: { messages } })).toEqual([]);
    expect(renderPrompt({ kwargs: { messages } }, {})).toEqual([
      { role: 'user', text: '{"role":{"toString":1}}' },
      { role: 'user', text: '{"id":[{"toString":1}]}' },
      { role: 'system', text: 'x' },
    ]);
  });
});
