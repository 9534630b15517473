import { beforeAll, expect, test } from 'vitest';
import { followRun } from '../../../../pipelines/agents/runs/await-run-end.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { endRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { endSeq, type RunReadStart, type StreamHub } from '../../../../pipelines/agents/streams/stream-types.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { all, chunk, idOf, makeRunEnd, newRun as newStream, openStreams } from '../streams/streams-under-test.ts';
import { kwargs, newRun, processId } from './run-rows.ts';

const under = forSuite(() => openStreams());
let hub: StreamHub;
let deploymentId: string;
beforeAll(async () => {
  deploymentId = await addDeployment(under.stores.database);
  hub = await under.hub({ deploymentId });
});

test('follows an ended run to its unpublished end in the log, without reading its row again', async () => {
  const { database } = under.stores;
  let queries = 0;
  const counted: typeof database = {
    ...database,
    query: (...query: Parameters<typeof database.query>) => {
      queries += 1;
      return database.query(...query) as never;
    },
  };
  const wanted = newRun(undefined, { kwargs: kwargs({ resumable: true }) });
  const { thread_id: threadId, run_id: runId } = await createRun(database, deploymentId, wanted);
  const [claimed] = await claimRuns(database, deploymentId, { slots: 1, processId });
  const ids = { deploymentId, threadId, runId };
  const stream = newStream({ ...ids, threadStart: claimed!.threadStart });
  const writer = under.publisher().open(stream);
  await writer.write([chunk('a'), chunk('b')]);
  await writer.settled();
  await endRun(database, claimed!, { status: 'success' });

  const follow = async (from: RunReadStart) =>
    all((await followRun({ deploymentId, database: counted, hub }, ids, from)).reader).then((events) =>
      events.map(idOf),
    );
  // A reader at the end, or beyond the last attempt, ends at once.
  expect(await follow({ attempt: 1, seq: endSeq })).toEqual([]);
  expect(await follow({ attempt: 2, seq: 1 })).toEqual([]);
  const positions: RunReadStart[] = ['start', { attempt: 1, seq: 1 }, { attempt: 1, seq: 2 }, { attempt: 1, seq: 3 }];
  queries = 0;
  const following = positions.map(follow);
  // Each reader queries the run, and whether the end of the run is still unpublished.
  await until('all readers to wait', () => queries === 2 * positions.length);
  await under.publisher().publishEnd(makeRunEnd(stream));
  expect(await Promise.all(following)).toEqual([['1-1', '1-2', '1-end'], ['1-2', '1-end'], ['1-end'], ['1-end']]);
  expect(queries).toBe(2 * positions.length);
});

test('a reader from now on gets the events that are published while the row of the run is read', async () => {
  const { database } = under.stores;
  const { thread_id: threadId, run_id: runId } = await createRun(database, deploymentId, newRun(undefined));
  const stream = newStream({ deploymentId, threadId, runId });
  const publish = async () => {
    const writer = under.publisher().open(stream);
    await writer.write([chunk('a'), chunk('b')]);
    await writer.settled();
  };
  let hasPublished = false;
  const publishing: typeof database = {
    ...database,
    query: async (...query: Parameters<typeof database.query>) => {
      const rows = await database.query(...query);
      if (!hasPublished) await publish();
      hasPublished = true;
      return rows as never;
    },
  };
  const { reader } = await followRun({ deploymentId, database: publishing, hub }, { threadId, runId }, 'now');
  const reading = all(reader);
  await under.publisher().publishEnd(makeRunEnd(stream));
  expect((await reading).map(idOf)).toEqual(['1-1', '1-2', '1-end']);
});
