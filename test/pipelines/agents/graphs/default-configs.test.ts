import { expect, it } from 'vitest';
import { parseDefaultConfigs } from '../../../../pipelines/agents/graphs/graphs-file.ts';

const graphs = ['a', 'b'].map((graphId) => ({ graphId, description: null, path: '/a.js', name: 'default' }));
const read = (LANGGRAPH_CONFIG?: string) =>
  parseDefaultConfigs({
    path: '/langgraph.json',
    graphs,
    env: LANGGRAPH_CONFIG === undefined ? {} : { LANGGRAPH_CONFIG },
  });

it('reads config and context of each graph from the variable', () => {
  const text = JSON.stringify({ a: { configurable: { model: 'm' }, recursion_limit: 7, context: { user: 'u' } } });
  expect([...read(text)]).toEqual([
    ['a', { config: { configurable: { model: 'm' }, recursion_limit: 7 }, context: { user: 'u' } }],
  ]);
  expect([read().size, read(' ').size, read('{}').size]).toEqual([0, 0, 0]);
});

it.each([
  ['{', 'it is not JSON'],
  ['[]', 'must be object'],
  ['{"a": 1}', 'a: must be object'],
  ['{"a": {"recursion_limit": 0}}', 'a.recursion_limit: must be >= 1'],
  ['{"a": {"maxConcurrency": 0}}', 'a'],
  ['{"c": {}}', "there is no graph 'c'"],
])('refuses %s', (text, reason) => {
  const message = expect.stringContaining(`env.LANGGRAPH_CONFIG: ${reason}`);
  expect(() => read(text)).toThrow(expect.objectContaining({ code: 'GRAPHS_FILE_INVALID', message }));
});
