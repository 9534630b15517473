import { describe, expect, test } from 'vitest';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';

/** The number of executed nodes that workers report, and the number of nodes whose results are stored. */

const under = forSuite(() => openPoolUnderTest('basic'));

async function countStored({ threadId, runId }: { threadId: string; runId: string }): Promise<number> {
  const { database, deploymentId } = under.threads;
  const sql = 'SELECT agents.count_stored_nodes($1, $2, $3) AS count';
  const [row] = await database.query<{ count: number }>(sql, [deploymentId, threadId, runId]);
  return row!.count;
}

describe('nodes of graphs', () => {
  test.each([
    ['steps', { steps: 4 }, 4],
    // Nodes of subgraphs count, and the node that is the subgraph.
    ['parent', {}, 4],
    // A node that interrupts counts.
    ['ask', { question: 'why?' }, 2],
    ['parent', { ask: true }, 3],
    ['both', {}, 2],
    ['pausing', {}, 1],
    ['tools', { messages: [] }, 2],
  ])('%s %j executes %i', async (graphId, input, expected) => {
    for (const stream_mode of [['values'], ['updates', 'messages-tuple'], ['events']]) {
      const ended = await under.run(graphId, { input, kwargs: { stream_mode, durability: 'async' } });
      expect([ended.handle.nodes, await countStored(ended)]).toEqual([expected, expected]);
    }
    const unstored = await under.run(graphId, { input, kwargs: { durability: 'exit' } });
    expect(unstored.handle.nodes).toBe(expected);
  });

  test('a resumed run counts the node that interrupted again', async () => {
    const first = await under.run('ask', { input: { question: 'why?' } });
    const kwargs = { command: { resume: 'because' } };
    const second = await under.run('ask', { thread: first.threadId, kwargs });
    expect(second.outcome).toMatchObject({ kind: 'finished', next: [] });
    expect([second.handle.nodes, await countStored(second)]).toEqual([2, 2]);
  });

  test('a node that throws does not count', async () => {
    const { outcome, handle } = await under.run('misbehave', { input: { how: 'fail' } });
    expect([outcome.kind, handle.nodes]).toEqual(['failed', 0]);
  });
});
