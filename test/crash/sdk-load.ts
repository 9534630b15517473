import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'langsmith';
import { locationOf } from './client.ts';
import type { Entry, Ledger } from './ledger.ts';
import type { Pipeline } from './pipeline.ts';

export interface SdkLoad {
  stop(): Promise<void>;
}

/**
 * Sends posts and patches through the stock SDK with its defaults: several senders send one by one, and each call
 * reports whether it was accepted; one sender uses background batches, and no call reports it.
 */
export function sdkLoad(pipeline: Pipeline, ledger: Ledger, { senders = 4, pauseMs = 30 } = {}): SdkLoad {
  const options = { apiUrl: pipeline.url, apiKey: pipeline.apiKey };
  const direct = new Client({ ...options, autoBatchTracing: false });
  const batching = new Client(options);
  let stopped = false;
  const sendDirectly = async () => {
    while (!stopped) {
      const entry = ledger.newRun();
      await direct.createRun(createdRun(entry)).then(
        () => {
          entry.accepted = true;
        },
        () => undefined,
      );
      entry.outputs = `out of ${entry.id}`;
      await direct.updateRun(entry.id, updatedRun(entry)).then(
        () => {
          // A patch without its post is deferred; it is stored only if the post was accepted.
          entry.patchAccepted = entry.accepted;
        },
        () => undefined,
      );
      await pause(pauseMs);
    }
  };
  const sendInBatches = async () => {
    while (!stopped) {
      const entry = ledger.newRun();
      entry.outputs = `out of ${entry.id}`;
      await batching.createRun(createdRun(entry));
      await batching.updateRun(entry.id, updatedRun(entry));
      await pause(pauseMs);
    }
  };
  const running = [...Array.from({ length: senders }, sendDirectly), sendInBatches()];
  return {
    async stop() {
      stopped = true;
      await Promise.all(running);
      await batching.awaitPendingTraceBatches();
    },
  };
}

export function createdRun(entry: Entry) {
  return {
    ...locationOf(entry),
    name: `of ${entry.project}`,
    run_type: 'chain',
    project_name: entry.project,
    start_time: entry.startMs,
    inputs: { text: entry.inputs },
  };
}

function updatedRun(entry: Entry) {
  const { id: _id, ...location } = locationOf(entry);
  return { ...location, outputs: { text: entry.outputs }, end_time: entry.startMs + 1_000 };
}
