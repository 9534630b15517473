import type { Operation } from '../../server/operation.ts';
import { streamThread } from '../streaming/stream-thread.ts';
import { cancelAgentRun } from './cancel-run.ts';
import { cancelAgentRuns } from './cancel-runs.ts';
import { createRun, createStatelessRun } from './create-run.ts';
import { createRunBatch } from './create-run-batch.ts';
import { deleteAgentRun } from './delete-run.ts';
import { getAgentRun } from './get-run.ts';
import { joinRun, joinRunStream, joinStatelessRunStream } from './join-runs.ts';
import { listRuns } from './list-runs.ts';
import { streamRun, streamStatelessRun } from './stream-run.ts';
import { waitForRun, waitForStatelessRun } from './wait-for-run.ts';

/** The operations that start, follow and cancel runs. */
export const runOperations: readonly Operation[] = [
  createRun,
  streamRun,
  waitForRun,
  listRuns,
  getAgentRun,
  deleteAgentRun,
  cancelAgentRun,
  cancelAgentRuns,
  joinRun,
  joinRunStream,
  createStatelessRun,
  streamStatelessRun,
  waitForStatelessRun,
  createRunBatch,
  joinStatelessRunStream,
  streamThread,
];
