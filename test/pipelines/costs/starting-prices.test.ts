import { RE2JS } from 're2js';
import { describe, expect, it } from 'vitest';
import { addDecimals, divideByMillion, formatDecimal } from '../../../pipelines/costs/decimal.ts';
import { startingPrices } from '../../../pipelines/costs/model-price.ts';

/** Returns the prices that match a name, in the order in which they apply. */
const matching = (name: string) => startingPrices.filter(({ match_pattern }) => new RegExp(match_pattern).test(name));

describe('the prices of the release', () => {
  it.each([
    ['gpt-4o', 'openai: gpt-4o', '0.0000025', '0.00001'],
    ['gpt-4o-2024-05-13', 'openai: gpt-4o-2024-05-13', '0.000005', '0.000015'],
    ['gpt-4o-2024-08-06', 'openai: gpt-4o', '0.0000025', '0.00001'],
    ['azure/gpt-4.1-mini', 'openai: gpt-4.1-mini', '0.0000004', '0.0000016'],
    ['gpt-5-mini-2025-08-07', 'openai: gpt-5-mini', '0.00000025', '0.000002'],
    ['o3', 'openai: o3', '0.000002', '0.000008'],
    ['text-embedding-3-small', 'openai: text-embedding-3-small', '0.00000002', '0'],
    ['claude-3-5-sonnet-20241022', 'anthropic: claude-sonnet-3.5', '0.000003', '0.000015'],
    ['claude-sonnet-4-5-20250929', 'anthropic: claude-sonnet-4.5', '0.000003', '0.000015'],
    ['claude-opus-4-20250514', 'anthropic: claude-opus-4', '0.000015', '0.000075'],
    ['global.anthropic.claude-haiku-4-5-20251001-v1:0', 'anthropic: claude-haiku-4.5', '0.000001', '0.000005'],
    ['us.anthropic.claude-haiku-4-5-20251001-v1:0', 'bedrock: claude-haiku-4.5', '0.0000011', '0.0000055'],
    ['anthropic.claude-3-haiku-20240307-v1:0', 'bedrock: claude-haiku-3', '0.00000025', '0.00000125'],
    ['models/gemini-2.5-flash', 'google: gemini-2.5-flash', '0.0000003', '0.0000025'],
    ['gemini-2.5-pro-preview-05-06', 'google: gemini-2.5-pro', '0.00000125', '0.00001'],
    ['gemini-2.0-flash-001', 'google: gemini-2.0-flash', '0.0000001', '0.0000004'],
    ['gemini-2.0-flash-lite-001', 'google: gemini-2.0-flash-lite', '0.000000075', '0.0000003'],
    ['mistral-large-latest', 'mistral: mistral-large', '0.000002', '0.000006'],
    ['llama-3.3-70b-versatile', 'groq: llama-3.3-70b-versatile', '0.00000059', '0.00000079'],
    [
      'meta-llama/Llama-3.3-70B-Instruct-Turbo',
      'together: meta-llama/Llama-3.3-70B-Instruct-Turbo',
      '0.00000088',
      '0.00000088',
    ],
    ['us.meta.llama3-3-70b-instruct-v1:0', 'bedrock: meta.llama3-3-70b-instruct-v1:0', '0.00000072', '0.00000072'],
    ['grok-4', 'xai: grok-4-0709', '0.000003', '0.000015'],
    ['deepseek-chat', 'deepseek: deepseek-chat', '0.00000027', '0.0000011'],
  ])('%s', (name, found, prompt, completion) => {
    expect(matching(name)[0]).toMatchObject({ name: found, prompt_cost: prompt, completion_cost: completion });
  });

  it.each(['', 'gpt', 'my-gpt-4o', 'gpt-4o-custom', 'claude', 'gemini-99', 'llama'])('%j has none', (name) => {
    expect(matching(name)).toEqual([]);
  });

  it('apply to their own name, newer prices before older ones', () => {
    const strip = (name: string) => name.replace(/^\w+: /, '');
    for (const { name, match_pattern } of startingPrices) {
      // Some hosts add a prefix to the name.
      const isWholeNameMatched = new RegExp(match_pattern).test(strip(name));
      if (isWholeNameMatched) expect(strip(matching(strip(name))[0]?.name ?? '')).toBe(strip(name));
      const starts = startingPrices.filter((price) => price.name === name).map(({ start_time }) => start_time ?? '');
      expect(starts, name).toEqual([...new Set(starts)].sort().reverse());
      expect(starts.at(-1), name).toBe('');
    }
  });

  it('are exact decimals with distinct ids, and details that are not part of the names', () => {
    expect(new Set(startingPrices.map(({ id }) => id)).size).toBe(startingPrices.length);
    expect(startingPrices.length).toBeGreaterThan(200);
    for (const price of startingPrices) {
      const details = { ...price.prompt_cost_details, ...price.completion_cost_details };
      for (const cost of [price.prompt_cost, price.completion_cost, ...Object.values(details)]) {
        expect(cost, price.name).toMatch(/^(0|[1-9]\d*)(\.\d*[1-9])?$/);
        expect(Number(cost), price.name).toBeLessThan(0.001);
      }
    }
  });

  // SDKs name the tokens that OpenAI reads from the cache after the service tier.
  it('charge cached tokens of every service tier at the price of cached tokens', () => {
    for (const { name, prompt_cost_details } of startingPrices) {
      const { cache_read, flex_cache_read, priority_cache_read } = prompt_cost_details ?? {};
      expect([flex_cache_read, priority_cache_read], name).toEqual([cache_read, cache_read]);
    }
  });

  it('have patterns that mean the same for RE2, and are fast for any name', () => {
    const names = startingPrices.map(({ name }) => name.replace(/^\w+: /, ''));
    const started = performance.now();
    for (const { match_pattern, name } of startingPrices) {
      const [ours, re2] = [new RegExp(match_pattern), RE2JS.compile(match_pattern)];
      for (const each of names) expect(re2.test(each), `${name} ${each}`).toBe(ours.test(each));
    }
    expect(performance.now() - started).toBeLessThan(30_000);
    // Repetitions that could cause backtracking: 256 characters that match the repeated part of a pattern.
    for (const start of ['claude-2', 'claude-haiku-4-5', 'gemini-2.0-flash-thinking', 'ft:gpt-4o-2024-']) {
      for (const part of ['.0', '-20250101', '-v1', '-latest', '-01-01', 'a']) {
        const long = (start + part.repeat(256)).slice(0, 256);
        const before = performance.now();
        matching(long);
        expect(performance.now() - before, long).toBeLessThan(1_000);
      }
    }
  });
});

describe('decimals', () => {
  it.each([
    [1, '1'],
    [2.5e-6, '0.0000025'],
    [1e-7, '0.0000001'],
    [1.5e-21, '0'],
    [-3e-8, '-0.00000003'],
    ['0.10', '0.10'],
    ['1E-7', '0.0000001'],
    ['12.5e3', '12500'],
    ['-1.25E+2', '-125'],
    ['1e-21', undefined],
    ['1e21', undefined],
    ['', undefined],
    ['1.', undefined],
    ['0x10', undefined],
    [' 1', undefined],
    [Number.NaN, undefined],
    [1e21, undefined],
    [null, undefined],
  ])('%j is %j', (value, text) => {
    expect(formatDecimal(value)).toBe(text);
  });

  it('are added and shifted exactly', () => {
    expect(addDecimals('0.1', '0.2')).toBe('0.3');
    expect(addDecimals('0.5', '-0.25')).toBe('0.25');
    expect(addDecimals('99999999999999999999', '0.00000000000000000001')).toBe(
      '99999999999999999999.00000000000000000001',
    );
    expect(divideByMillion('2.5')).toBe('0.0000025');
    expect(divideByMillion('1000000')).toBe('1');
    expect(divideByMillion('0')).toBe('0');
  });
});
