import type { PriceList } from './build-prices.ts';

/**
 * Prices in dollars per million tokens for the standard tier with the shortest context. Sources: the price pages of the
 * providers, and `@pydantic/genai-prices` 0.1.8 (MIT), November 2026.
 */
export const mistral: PriceList = {
  provider: 'mistral',
  prefix: '(?:mistral/)?',
  rows: [
    ['codestral', 'codestral-(?:latest|2501)', '0.3', '0.9'],
    ['codestral-2508', '', '0.3', '0.9', { cacheRead: '0.03' }],
    ['devstral-2512', '', '0.4', '2', { cacheRead: '0.04' }],
    ['devstral-small', '(?:labs-)?devstral-small(?:-\\d{4}|-latest)?', '0.1', '0.3'],
    ['magistral-medium', 'magistral-medium(?:-\\d{4}|-latest)?', '2', '5'],
    ['magistral-small', 'magistral-small(?:-\\d{4}|-latest)?', '0.5', '1.5'],
    ['ministral-14b-2512', '', '0.2', '0.2', { cacheRead: '0.02' }],
    ['ministral-3b', '', '0.04', '0.04'],
    ['ministral-3b-2512', '', '0.1', '0.1', { cacheRead: '0.01' }],
    ['ministral-8b', 'ministral-8b(?:-2410)?', '0.1', '0.1'],
    ['ministral-8b-2512', '', '0.15', '0.15', { cacheRead: '0.015' }],
    ['ministral-8b-latest', '', '0.15', '0.15', { cacheRead: '0.015', from: '2025-12-02' }],
    ['ministral-8b-latest', '', '0.1', '0.1'],
    ['mistral-7b', '(?:open-)?mistral-7b', '0.25', '0.25'],
    ['mistral-embed', '', '0.1', '0.1'],
    ['mistral-large', 'mistral-large(?:-latest|-2407|-2411)?', '2', '6'],
    ['mistral-large-2512', '', '0.5', '1.5', { cacheRead: '0.05' }],
    ['mistral-medium-2312', '', '2.7', '8.1'],
    ['mistral-medium-3-1', 'mistral-medium(?:-2505|-2508)?', '0.4', '2', { cacheRead: '0.04' }],
    ['mistral-medium-3-5', 'mistral-medium-3(?:[.-]5)?', '1.5', '7.5', { cacheRead: '0.15' }],
    ['mistral-medium-latest', '', '1.5', '7.5', { cacheRead: '0.15', from: '2026-06-16' }],
    ['mistral-medium-latest', '', '0.4', '2', { cacheRead: '0.04' }],
    ['mistral-nemo', '(?:open-)?mistral-nemo', '0.15', '0.15'],
    ['mistral-saba', 'mistral-saba(?:-latest)?', '0.2', '0.6'],
    ['mistral-small-2603', '', '0.15', '0.6', { cacheRead: '0.015' }],
    ['mistral-small-latest', '', '0.1', '0.3'],
    ['mistral-tiny', '', '0.25', '0.25'],
    ['mixtral-8x7b', '(?:open-)?mixtral-8x7b', '0.7', '0.7'],
    ['pixtral-12b', 'pixtral-12b(?:-latest)?', '0.15', '0.15'],
    ['pixtral-large', 'pixtral-large-(?:latest|2411)', '2', '6'],
    [
      'voxtral-small-24b-2507',
      'voxtral-small(?:-24b-2507|-2507|-latest)',
      '0.1',
      '0.4',
      { cacheRead: '0.01', from: '2026-08-11' },
    ],
    ['voxtral-small-24b-2507', 'voxtral-small(?:-24b-2507|-2507|-latest)', '0.1', '0.3', { cacheRead: '0.01' }],
    ['mixtral-8x22b', '(?:open-)?mixtral-8x22b(?:-instruct)?', '0.9', '0.9'],
  ],
};

export const xai: PriceList = {
  provider: 'xai',
  prefix: '(?:xai/|x-ai/)?',
  suffix: '(?:-\\d{8})?(?:-latest)?',
  rows: [
    ['grok-2-1212', 'grok-2(?:-1212)?', '2', '10'],
    ['grok-2-vision-1212', 'grok-2-vision(?:-1212)?', '2', '10'],
    ['grok-3', 'grok-3(?:-beta)?', '3', '15', { cacheRead: '0.75' }],
    ['grok-3-fast', 'grok-3-fast(?:-beta)?', '5', '25', { cacheRead: '1.25' }],
    ['grok-3-mini', 'grok-3-mini(?:-beta)?', '0.3', '0.5', { cacheRead: '0.075' }],
    ['grok-3-mini-fast', 'grok-3-mini-fast(?:-beta)?', '0.6', '4', { cacheRead: '0.15' }],
    ['grok-4-0709', 'grok-4(?:-0709)?', '3', '15', { cacheRead: '0.75' }],
    ['grok-4-1-fast-non-reasoning', '', '0.2', '0.5', { cacheRead: '0.05' }],
    ['grok-4-1-fast-reasoning', 'grok-4-1-fast(?:-reasoning)?', '0.2', '0.5', { cacheRead: '0.05' }],
    ['grok-4-fast-non-reasoning', '', '0.2', '0.5', { cacheRead: '0.05' }],
    ['grok-4-fast-reasoning', 'grok-4-fast(?:-reasoning)?', '0.2', '0.5', { cacheRead: '0.05' }],
    ['grok-4.20', '', '1.25', '2.5', { cacheRead: '0.2' }],
    ['grok-4.20-multi-agent', '', '2', '6', { cacheRead: '0.2' }],
    ['grok-4.3', '', '1.25', '2.5', { cacheRead: '0.2' }],
    ['grok-4.5', 'grok(?:-4[.-]5)?', '2', '6', { cacheRead: '0.3' }],
    ['grok-4.6', '', '2', '6', { cacheRead: '0.5' }],
    ['grok-build-0.1', '', '1', '2', { cacheRead: '0.2' }],
    ['grok-code-fast-1', 'grok-code-fast(?:-1)?(?:-0825)?', '0.2', '1.5', { cacheRead: '0.02' }],
  ],
};

export const deepseek: PriceList = {
  provider: 'deepseek',
  prefix: '(?:deepseek/)?',
  rows: [
    ['deepseek-chat', 'deepseek-chat(?:-v3-0324)?', '0.27', '1.1', { cacheRead: '0.07' }],
    ['deepseek-reasoner', 'deepseek-reasoner|deepseek-r1(?:-0528)?', '0.55', '2.19', { cacheRead: '0.14' }],
    ['deepseek-v3.1-terminus', '', '0.27', '0.95', { cacheRead: '0.13' }],
    ['deepseek-v3.2', '', '0.2288', '0.3432'],
    ['deepseek-v3.2-exp', '', '0.27', '0.41'],
    ['deepseek-v4-flash', '', '0.22', '0.66', { cacheRead: '0.007', from: '2026-08-17' }],
    ['deepseek-v4-flash', '', '0.14', '0.28', { cacheRead: '0.0028' }],
    ['deepseek-v4-pro', '', '0.66', '1.98', { cacheRead: '0.022', from: '2026-08-17' }],
    ['deepseek-v4-pro', '', '0.435', '0.87', { cacheRead: '0.003625' }],
  ],
};

export const cohere: PriceList = {
  provider: 'cohere',
  prefix: '(?:cohere/)?',
  rows: [
    ['c4ai-aya-expanse-32b', '(?:c4ai-)?aya-expanse-32b', '0.5', '1.5'],
    ['c4ai-aya-expanse-8b', '(?:c4ai-)?aya-expanse-8b', '0.5', '1.5'],
    ['command', '', '1', '2'],
    ['command-a', 'command-a(?:-03-2025)?', '2.5', '10'],
    ['command-light', 'command-light(?:-nightly)?', '0.3', '0.6'],
    ['command-r', 'command-r(?:-08-2024)?', '0.15', '0.6'],
    ['command-r-plus', 'command-r-plus(?:-08-2024)?', '2.5', '10'],
    ['command-r7b', 'command-r7b(?:-12-2024)?', '0.0375', '0.15'],
    ['embed-v4.0', '', '0.12', '0'],
  ],
};
