import { afterAll, beforeAll, expect, it } from 'vitest';
import { requireStored } from '../../../infra/event-log/find-accepted.ts';
import { type InProcessLog, openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { feedbackEvents, topics } from '../../../schemas/topics.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const stores = forSuite(() => freshStores());
/** No sink stores its events. */
let log: InProcessLog;
beforeAll(async () => {
  const { clickhouse, database } = stores;
  log = await openInProcessLog({ clickhouse, database, topics, partitions: 1, maxPendingBytes: 1_000_000, logger });
});
afterAll(async () => {
  await log.close();
});

const requireFeedback = (of: Parameters<typeof requireStored>[0]['log']) =>
  requireStored({ log: of, topic: feedbackEvents, storeWaitMs: 100 });

it('callers at the same time share their waits', async () => {
  let positions = 0;
  const counted: typeof log = Object.create(log, {
    position: {
      value: (topic: typeof feedbackEvents) => {
        positions += 1;
        return log.position(topic);
      },
    },
    isStored: { value: log.isStored.bind(log) },
  });
  await Promise.all(Array.from({ length: 200 }, () => requireFeedback(counted)));
  expect(positions).toBeLessThanOrEqual(2);
});

it('a caller does not share a wait that began before its call; events that are not stored in time are an error', async () => {
  await requireFeedback(log);
  await log.publish(feedbackEvents, [{ key: 'key', value: Buffer.from('not stored'), headers: {} }]);
  const waits = await Promise.allSettled([requireFeedback(log), requireFeedback(log)]);
  const notStored = { code: 'NOT_STORED_YET', status: 503, retryAfterSeconds: 2 };
  expect(waits).toMatchObject([{ reason: notStored }, { reason: notStored }]);
});
