import { v7 as uuidv7 } from 'uuid';
import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { createChildRunTracer } from '../../../../pipelines/agents/traces/child-runs.ts';
import type { ChildRun } from '../../../../pipelines/agents/traces/trace-order.ts';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import { addOrganization, startApi } from '../../../api/start-api.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { kwargs } from '../runs/run-rows.ts';

/** Child runs as graph code can forge them. */

const api = forSuite(() => startApi());
const owner = forSuite(() => addOrganization(api.database, 'owner'));

const claimedRun = (): ClaimedRun => ({
  deploymentId: owner.id,
  threadId: uuidv7(),
  runId: uuidv7(),
  assistantId: uuidv7(),
  graphId: 'forging',
  attempt: 1,
  leaseToken: uuidv7(),
  threadStart: 1,
  baseCheckpointId: undefined,
  alone: false,
  kwargs: kwargs({ input: {} }),
  metadata: {},
  startedAt: new Date().toISOString(),
});

const empty = { kind: 'post', location: '', members: '', values: '' } as const;
const emptyRuns = (count: number, open = false): ChildRun[] =>
  Array.from({ length: count }, (_, index) => ({ ...empty, runId: `r${index}`, open }));
const marks = { droppedRuns: 0, droppedValues: 0 };

/** Opens a tracer on the log of the API. While `refuses` is true, the log accepts nothing. */
function tracer(maxRuns: number) {
  const { log, ...accept } = api.services.accept;
  const state = { refuses: false, refused: 0, logged: [] as object[] };
  const childRuns = createChildRunTracer({
    accept: {
      ...accept,
      log: {
        schemaId: (topic) => log.schemaId(topic),
        publish: async (topic, messages) => {
          if (!state.refuses) return log.publish(topic, messages);
          state.refused += 1;
          throw runlakeError('EVENT_LOG_UNAVAILABLE');
        },
      },
    },
    defaultSender: { workspaceId: owner.workspaceIds[0], userId: owner.userId, keyId: uuidv7() },
    logger: Object.create(logger, { warn: { value: (line: object) => void state.logged.push(line) } }),
    maxRuns,
    maxCharacters: 1_000,
  });
  const open = (run = claimedRun()) => childRuns.open(run) ?? expect.fail('not traced');
  return { childRuns, state, open };
}

const protocolViolated = expect.objectContaining({ code: 'WORKER_PROTOCOL_VIOLATED' });

describe('more child runs than a worker may report', () => {
  it.each([
    ['ended', false],
    ['open', true],
  ])('are a violation: %s runs', async (_, open) => {
    const { childRuns, open: openAttempt } = tracer(10);
    const attempt = openAttempt();
    // Each run may be reported twice, as a post and as a patch.
    for (let half = 0; half < 2; half += 1) attempt.take({ runs: emptyRuns(10, open), ...marks });
    expect(() => attempt.take({ runs: emptyRuns(1, open), ...marks })).toThrow(protocolViolated);
    // Another attempt has a separate count.
    openAttempt().take({ runs: emptyRuns(10, open), ...marks });
    await childRuns.close();
  });
});

it('drops runs without text that exceed the buffer, and counts them', async () => {
  const { childRuns, open } = tracer(100_000);
  const attempt = open();
  attempt.take({ runs: emptyRuns(200_000), ...marks });
  expect(attempt.marks.droppedRuns).toBeGreaterThan(100_000);
  await childRuns.close();
}, 60_000);

it('does not keep open runs beyond a limit of their text, and counts them', async () => {
  const { childRuns, open } = tracer(1_000);
  const attempt = open();
  const location = 'x'.repeat(1024 * 1024);
  attempt.take({ runs: emptyRuns(20, true).map((run) => ({ ...run, location })), ...marks });
  const { droppedRuns } = attempt.marks;
  expect(droppedRuns).toBeGreaterThanOrEqual(4);
  expect(droppedRuns).toBeLessThan(20);
  await childRuns.close();
});

it('retries the buffered runs after the log has refused them', async () => {
  const { childRuns, open, state } = tracer(100);
  const run = claimedRun();
  const attempt = open(run);
  const id = uuidv7();
  const micros = Date.now() * 1_000;
  const order = `${formatDottedOrderSegment(micros, run.runId)}.${formatDottedOrderSegment(micros, id)}`;
  const location = `"id":"${id}","trace_id":"${run.runId}","parent_run_id":"${run.runId}","dotted_order":"${order}"`;
  const members = `"name":"valid","run_type":"chain","start_time":${micros / 1_000}`;
  state.refuses = true;
  attempt.take({ runs: [{ ...empty, runId: id, location, members, open: false }, ...emptyRuns(100)], ...marks });
  await expect.poll(() => state.refused, { timeout: 30_000 }).toBeGreaterThan(0);
  state.refuses = false;
  await childRuns.close();
  expect(state.logged).toContainEqual(expect.objectContaining({ retryable: true }));
  const headers = { 'x-api-key': owner.adminKey };
  await expect
    .poll(async () => (await api.server.inject({ url: `/runs/${id}`, headers })).statusCode, { timeout: 30_000 })
    .toBe(200);
}, 60_000);
