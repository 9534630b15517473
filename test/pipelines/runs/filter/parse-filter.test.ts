import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { checkRunFilters, parseRunFilter } from '../../../../pipelines/runs/filter/run-filter.ts';

const parse = (text: string) => parseRunFilter('filter', text);
const invalid = (position: number, reason: string) =>
  runlakeError('INVALID_FILTER', { parameter: 'filter', position, reason }).message;

describe('values of an expression', () => {
  it.each([
    ['eq(name, "a\\"b")', 'a"b'],
    [`eq(name, 'it\\'s')`, "it's"],
    ['eq(name, "tab\\t\\u00e9\\ud83d\\ude00")', 'tab\té\u{1f600}'],
    ['eq("name", "")', ''],
    ['like(name, "100\\%")', '100\\%'],
    ['gt(latency, "5s")', 5_000_000],
    ['gt(latency, "1.5 m")', 90_000_000],
    ['gt(latency, "250ms")', 250_000],
    ['gt(latency, "1h")', 3_600_000_000],
    ['gt(latency, 5)', 5_000_000],
    ['gt(latency, 0.5)', 500_000],
    ['gt(total_tokens, 1e3)', 1_000],
    ['lt(total_tokens, -2.5)', -2.5],
    ['eq(is_root, false)', false],
    ['neq(error, null)', null],
    ['eq(feedback_score, true)', 1],
    ['eq(start_time, "2023-07-15T12:34:56+01:00")', Date.UTC(2023, 6, 15, 11, 34, 56) * 1_000],
    ['eq(id, "0190A8F8C8C07B0A8F8C0190A8F8C8C0")', '0190a8f8-c8c0-7b0a-8f8c-0190a8f8c8c0'],
    ['in(name, ["a", "b"])', ['a', 'b']],
  ])('%s', (text, value) => {
    expect(parse(text)).toMatchObject({ kind: 'compare', value });
  });
});

describe('an invalid expression', () => {
  const uuid = 'a UUID';
  it.each<[string, number, string]>([
    ['eq(latancy, 5)', 4, 'unknown field `latancy`, did you mean `latency`'],
    ['and(eq(is_root, true), eq(Name, "x"))', 27, 'unknown field `Name`, did you mean `name`'],
    [
      'equals(name, "x")',
      1,
      expect.stringContaining('unknown function `equals`, expected one of and, or, not,') as never,
    ],
    ['like_(name, "x")', 1, 'unknown function `like_`, did you mean `like`'],
    [
      'gt(latency, "5 parsecs")',
      13,
      expect.stringContaining('found `"5 parsecs"` for `latency`, expected a number of seconds') as never,
    ],
    ['gt(name, "x")', 1, 'found `gt`, expected an operator of `name`: eq, neq, in, like, search'],
    ['eq(id, "x")', 8, `found \`"x"\` for \`id\`, expected ${uuid}`],
    ['eq(id, null)', 8, `found \`null\` for \`id\`, expected ${uuid}`],
    ['eq(is_root, "true")', 13, 'found `"true"` for `is_root`, expected `true` or `false`'],
    ['eq(total_tokens, [1])', 18, 'found a list for `total_tokens`, expected a number'],
    ['in(name, "x")', 10, 'found `"x"` for `name`, expected a list in `[ ]`'],
    [
      'eq(status, "sucess")',
      12,
      'found `"sucess"` for `status`, expected one of "success", "error", "pending", did you mean `success`',
    ],
    [
      'gt(start_time, "yesterday")',
      16,
      'found `"yesterday"` for `start_time`, expected an ISO 8601 date and time in a string',
    ],
    [
      'has(metadata, "[1]")',
      15,
      'found `"[1]"` for `metadata`, expected a JSON object of at most 100 levels in a string',
    ],
    [
      `has(metadata, "{'a':${'['.repeat(100)}1${']'.repeat(100)}}")`.replaceAll("'", '\\"'),
      15,
      expect.stringContaining('expected a JSON object of at most 100 levels in a string') as never,
    ],
    ['gt(metadata_value, "5")', 20, 'found `"5"` for `metadata_value`, expected a number'],
    ['search(tags, "x")', 8, 'found `tags`, expected a field with text: name, error, inputs, outputs'],
    ['eq(execution_order, 2)', 21, 'found `2` for `execution_order`, expected 1, which means a root run'],
    ['eq(name "x")', 9, 'found `"x"`, expected `,`'],
    ['eq(name, "x"', 13, 'found the end of the expression, expected `)`'],
    ['and(eq(name, "x") eq(name, "y"))', 19, 'found `eq`, expected `,` or `)`'],
    ['eq(name, "x") or', 15, 'found `or`, expected the end of the expression'],
    ['eq(name, x)', 10, expect.stringContaining('found `x`, expected a value: a string, a number,') as never],
    ['in(name, [])', 11, expect.stringContaining('found `]`, expected a string') as never],
    ['in(name, [[1]])', 11, expect.stringContaining('found `[`, expected a string') as never],
    ['and()', 5, 'found `)`, expected a condition such as `eq(name, "x")`'],
    ['name = "x"', 1, expect.stringContaining('unknown function `name`') as never],
    ['eq(name, "x', 10, 'the string that begins here has no closing `"`'],
    ['eq(name, ;)', 10, expect.stringContaining('found `;`, expected a name') as never],
    ['   ', 4, 'found the end of the expression, expected a condition such as `eq(name, "x")`'],
    [
      'eq(constructor, 1)',
      4,
      expect.stringContaining('unknown field `constructor`, expected one of id, name') as never,
    ],
    ['eq(total_tokens, 1e999)', 18, 'found `1e999`, expected a smaller number'],
  ])('%s', (text, position, reason) => {
    let message = '';
    try {
      parse(text);
    } catch (error) {
      message = (error as Error).message;
    }
    if (typeof reason === 'string') expect(message).toBe(invalid(position, reason));
    else {
      expect(message).toContain(`at character ${position}: `);
      expect(message).toEqual(reason);
    }
  });

  it.each([
    ['too long', `search("${'x'.repeat(20_000)}")`, 20_001, 'the expression is longer than 20000 characters'],
    [
      'too deep',
      `${'not('.repeat(32)}eq(name, "x")${')'.repeat(32)}`,
      129,
      'the expression is nested deeper than 32 levels',
    ],
    [
      'too many conditions',
      `and(${Array(101).fill('eq(name,"x")').join()})`,
      1_305,
      'the expression has more than 100 conditions',
    ],
    [
      'too many items',
      `in(total_tokens,[${Array(1_001).fill('1').join()}])`,
      2_018,
      'the list has more than 1000 items',
    ],
  ])('%s', (_name, text, position, reason) => {
    expect(() => parse(text)).toThrow(invalid(position, reason));
  });

  it('is listed with the same message, for each parameter', () => {
    const bad = 'eq(latancy, 5)';
    const errors = checkRunFilters({
      filter: 'eq(name, "x")',
      trace_filter: bad,
      tree_filter: bad,
      search_filter: null,
    });
    const message = invalid(4, 'unknown field `latancy`, did you mean `latency`');
    expect(errors).toEqual(
      ['trace_filter', 'tree_filter'].map((field) => ({ field, message: message.replace('filter', field) })),
    );
  });
});
