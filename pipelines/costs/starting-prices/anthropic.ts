import type { PriceList, PriceRow } from './build-prices.ts';

/**
 * Prices in dollars per million tokens: input, output, cache reads, cache writes for five minutes, and cache writes for
 * an hour.
 */
type ClaudeRow = readonly [
  family: string,
  version: string,
  input: string,
  output: string,
  cacheRead: string,
  cacheWrite: string,
  cacheWriteHour: string,
];

/**
 * Prices of the standard tier with the shortest context. Sources: the price page of the provider, and
 * `@pydantic/genai-prices` 0.1.8 (MIT), November 2026.
 */
const older: readonly ClaudeRow[] = [
  ['haiku', '3.5', '0.8', '4', '0.08', '1', '1.6'],
  ['sonnet', '3.5', '3', '15', '0.3', '3.75', '6'],
  ['sonnet', '3.7', '3', '15', '0.3', '3.75', '6'],
  ['haiku', '3', '0.25', '1.25', '0.03', '0.3', '0.5'],
  ['opus', '3', '15', '75', '1.5', '18.75', '30'],
  ['sonnet', '3', '3', '15', '0.3', '3.75', '6'],
  ['opus', '4', '15', '75', '1.5', '18.75', '30'],
  ['opus', '4.1', '15', '75', '1.5', '18.75', '30'],
  ['sonnet', '4', '3', '15', '0.3', '3.75', '6'],
];

/** From version 4.5 on, models have different prices on the regional endpoints of Amazon Bedrock. */
const newer: readonly ClaudeRow[] = [
  ['fable', '5', '10', '50', '1', '12.5', '20'],
  ['fable', '5.1', '10', '50', '0.25', '12.5', '20'],
  ['haiku', '4.5', '1', '5', '0.1', '1.25', '2'],
  ['opus', '4.5', '5', '25', '0.5', '6.25', '10'],
  ['opus', '4.6', '5', '25', '0.5', '6.25', '10'],
  ['opus', '4.7', '5', '25', '0.5', '6.25', '10'],
  ['opus', '4.8', '5', '25', '0.5', '6.25', '10'],
  ['opus', '5', '5', '25', '0.5', '6.25', '10'],
  ['opus', '5.5', '4', '20', '0.2', '5', '8'],
  ['sonnet', '4.5', '3', '15', '0.3', '3.75', '6'],
  ['sonnet', '4.6', '3', '15', '0.3', '3.75', '6'],
  ['sonnet', '5', '2', '10', '0.2', '2.5', '4'],
];

const newerInRegion: readonly ClaudeRow[] = [
  ['fable', '5', '11', '55', '1.1', '13.75', '22'],
  ['fable', '5.1', '11', '55', '0.275', '13.75', '22'],
  ['haiku', '4.5', '1.1', '5.5', '0.11', '1.375', '2.2'],
  ['opus', '4.5', '5.5', '27.5', '0.55', '6.875', '11'],
  ['opus', '4.6', '5.5', '27.5', '0.55', '6.875', '11'],
  ['opus', '4.7', '5.5', '27.5', '0.55', '6.875', '11'],
  ['opus', '4.8', '5.5', '27.5', '0.55', '6.875', '11'],
  ['opus', '5', '5.5', '27.5', '0.55', '6.875', '11'],
  ['opus', '5.5', '4.4', '22', '0.22', '5.5', '8.8'],
  ['sonnet', '4.5', '3.3', '16.5', '0.33', '4.125', '6.6'],
  ['sonnet', '4.6', '3.3', '16.5', '0.33', '4.125', '6.6'],
  ['sonnet', '5', '2.2', '11', '0.22', '2.75', '4.4'],
];

/** Model names contain the version before or after the family: `claude-3-5-haiku`, `claude-haiku-4-5`. */
function toPriceRow([family, version, input, output, cacheRead, cacheWrite, cacheWriteHour]: ClaudeRow): PriceRow {
  const digits = version.includes('.') ? version.replace('.', '[.-]') : `${version}(?:[.-]0)?`;
  const pattern = `claude-(?:${family}-${digits}|${digits}-${family})`;
  return [`claude-${family}-${version}`, pattern, input, output, { cacheRead, cacheWrite, cacheWriteHour }];
}

const suffix = '(?:[-@]\\d{8}|[-@]latest|-v\\d(?::\\d)?|-thinking)*';

export const anthropic: PriceList = {
  provider: 'anthropic',
  prefix: '(?:anthropic/|vertex_ai/|global[.]anthropic[.])?',
  suffix,
  rows: [...[...newer, ...older].map(toPriceRow), ['claude-2', 'claude-v?2(?:[.:]\\d)*', '8', '24']],
};

export const claudeOnBedrock: PriceList = {
  provider: 'bedrock',
  prefix: '(?:[a-z-]+[.])?anthropic[.]',
  suffix,
  rows: [...newerInRegion, ...older].map(toPriceRow),
};
