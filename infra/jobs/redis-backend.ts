import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import type { Logger } from '../telemetry/logger.ts';
import type { JobBackend } from './backend.ts';

/** Queues in Redis. Nothing in it is beyond being rebuilt from the database. */
export function openRedisBackend(url: string, logger: Logger): JobBackend {
  // Who enqueues hears of a Redis that is gone; workers wait for it without end, as BullMQ demands.
  const forQueues = new Redis(url, { maxRetriesPerRequest: 2, connectionName: 'runlake-queues' });
  const forWorkers = new Redis(url, {
    maxRetriesPerRequest: null,
    connectionName: 'runlake-workers',
    lazyConnect: true,
  });
  for (const connection of [forQueues, forWorkers]) {
    connection.on('error', (err) => logger.warn({ err }, 'the connection to Redis failed'));
  }
  const prefix = 'runlake';
  return {
    openQueue: (name) => new Queue(name, { connection: forQueues, prefix }),
    openWorker: (name, run, limits) => new Worker(name, run, { connection: forWorkers, prefix, ...limits }),
    close: async () => {
      forQueues.disconnect();
      forWorkers.disconnect();
    },
  };
}
