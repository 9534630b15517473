import { expect, test } from 'vitest';
import { type JobUnderTest, openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';

/** Attempts after an attempt that died at an interrupt: after its last write and before its run was ended. */

const under = forSuite(() => openPoolUnderTest('basic'));

/**
 * Runs two attempts of a run; the second one starts as the executor starts it.
 *
 * @returns the result of the second attempt.
 */
async function twice(graph: string, first: JobUnderTest, then: Pick<JobUnderTest, 'kwargs' | 'job'> = {}) {
  const lostAttempt = await under.run(graph, first);
  const again = await under.run(graph, { ...first, job: { start: { kind: 'continue' } }, ...then, after: lostAttempt });
  expect(again.runId).toBe(lostAttempt.runId);
  const { outcome, threadId } = again;
  return outcome.kind === 'finished' ? { threadId, ...JSON.parse(outcome.values), next: outcome.next } : outcome;
}

/** Returns the start of a second attempt whose first attempt wrote no checkpoint of the root graph. */
async function buildStartFromHead(thread: string): Promise<Pick<JobUnderTest, 'job'>> {
  const [head] = await under.threads.database.query<{ id: string }>(
    `SELECT checkpoint_id AS id FROM agents.checkpoints WHERE thread_id = $1 AND checkpoint_ns = ''
     ORDER BY checkpoint_id DESC LIMIT 1`,
    [`${under.threads.deploymentId}:${thread}`],
  );
  return { job: { start: { kind: 'input', checkpoint: { checkpoint_id: head!.id } } } };
}

test('the second attempt stops at the interrupts of the run', async () => {
  const stopping = (kwargs: NonNullable<JobUnderTest['kwargs']>) => ({ input: { steps: 3 }, kwargs });
  expect(await twice('steps', stopping({ interrupt_before: ['step'] }))).toMatchObject({ count: 0, next: ['step'] });
  expect(await twice('steps', stopping({ interrupt_after: '*' }))).toMatchObject({ count: 1, next: ['step'] });
  const interruptAtStart = stopping({ interrupt_before: ['__start__'] });
  expect(await twice('steps', interruptAtStart)).toMatchObject({ next: ['__start__'] });
  expect(await twice('pausing', {})).toMatchObject({ answer: 'first', next: ['second'] });
});

test('the second attempt ignores interrupts of other nodes', async () => {
  const kwargs = { interrupt_before: ['__start__'], interrupt_after: ['__start__'] };
  const first = { input: { steps: 3 }, kwargs: { interrupt_after: '*' } } as const;
  expect(await twice('steps', first, { kwargs })).toMatchObject({ count: 3, next: [] });
  const ask = { kwargs: { interrupt_before: ['prepare'] } };
  expect(await twice('ask', ask, { kwargs: { interrupt_before: ['finish'] } })).toMatchObject({ next: ['ask'] });
});

test('the second attempt stops at the interrupts of a subgraph, and parallel nodes end', async () => {
  const inside = async (thread: string) => {
    const { database, deploymentId } = under.threads;
    const rows = await database.query<{ path: string }>(
      `SELECT DISTINCT ON (checkpoint_ns) metadata ->> 'step' AS path FROM agents.checkpoints
       WHERE thread_id = $1 AND checkpoint_ns LIKE 'between:%|stopping:%' ORDER BY checkpoint_ns, checkpoint_id DESC`,
      [`${deploymentId}:${thread}`],
    );
    return rows.map(({ path }) => Number(path));
  };
  const first = await twice('resting', {});
  expect(first).toMatchObject({ next: ['between'] });
  const { threadId: thread } = first;
  expect(await inside(thread)).toEqual([1]);

  // Each run resumes from one interrupt to the next. The head of the thread belongs to another run, so the second
  // attempt starts as the first did.
  const continuedInput = { thread, input: null };
  const startFromHead = await buildStartFromHead(thread);
  for (const step of [2, 3]) {
    expect(await twice('resting', continuedInput, startFromHead)).toMatchObject({ next: ['between'] });
    expect(await inside(thread)).toEqual([step]);
  }
  expect(await under.run('resting', continuedInput)).toMatchObject({ outcome: { next: [] } });
  expect((await under.values('resting', continuedInput)).path.sort()).toEqual(
    ['beside', 'end', 'first', 'second', 'third'].sort(),
  );
});

test.each([['as a plain value'], ['by interrupt id']])(
  'the second attempt resumes only the answered interrupt: %s',
  async (how) => {
    const first = await under.run('inquiring');
    const { threadId: thread } = first;
    let { outcome } = first;
    const open = () => (outcome.kind === 'finished' ? Object.values(outcome.interrupts).flat() : [outcome]);
    for (const [answer, next] of Object.entries({ a: 'two?', b: 'three?', c: 'four?' })) {
      const question = open()[0] as { id: string };
      const resume = how === 'as a plain value' ? answer : { [question.id]: answer };
      const asked = { thread, kwargs: { command: { resume } } };
      const startFromHead = await buildStartFromHead(thread);
      const died = await under.run('inquiring', asked);
      const isOwn = JSON.stringify(await buildStartFromHead(thread)) !== JSON.stringify(startFromHead);
      const job = isOwn ? { start: { kind: 'continue' } as const } : startFromHead.job!;
      ({ outcome } = await under.run('inquiring', { ...asked, job, after: died }));
      expect(open(), next).toMatchObject([{ value: next }]);
    }
    const { path } = await under.values('inquiring', { thread, kwargs: { command: { resume: 'd' } } });
    expect(path).toEqual(['one? a', 'two? b', 'three? c', 'four? d']);
  },
);
