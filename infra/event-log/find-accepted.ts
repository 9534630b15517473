import type { Topic } from '../../schemas/topics.ts';
import { runlakeError } from '../errors/runlake-error.ts';
import { pause } from '../timeouts/backoff.ts';
import { type EventLog, waitUntilStored } from './event-log.ts';

type StorageLog = Pick<EventLog, 'position' | 'isStored'>;

/** A wait until the events are stored that a topic had when it began. */
interface StorageWait {
  /** Infinity: it has not begun. */
  beganAtMs: number;
  readonly isStored: Promise<boolean>;
}

/** The newest wait for each topic of a log. */
const waits = new WeakMap<StorageLog, Map<Topic, StorageWait>>();
/** Time in which callers join a wait. Each wait sends requests to Kafka, whose client all of them share. */
const joinMs = 500;
/** Minimum time between the beginnings of two waits. Callers in between share the second one. */
const minIntervalMs = 100;

interface Search {
  readonly log: StorageLog;
  readonly topic: Topic;
  readonly waitMs: number;
  readonly storeWaitMs: number;
}

/**
 * Looks for something that an accepted event contains. Before it returns undefined, it waits at most `storeWaitMs` until the
 * events of `topic` are stored that the log had accepted at the time of the call: another process may have accepted this one.
 *
 * @param find Waits up to `waitMs` until it is found.
 * @throws NOT_STORED_YET if these events are not stored in time; errors of `find` and of the log.
 */
export async function findAccepted<Found>(
  search: Search,
  find: (waitMs: number) => Promise<Found | undefined>,
): Promise<Found | undefined> {
  const calledAtMs = performance.now();
  const found = await find(search.waitMs);
  if (found !== undefined) return found;
  const isStored = await joinStorageWait(search, calledAtMs);
  const late = await find(0);
  if (late === undefined && !isStored) throw createNotStoredError();
  return late;
}

/**
 * Waits at most `storeWaitMs` until the events of `topic` are stored that the log had accepted at the time of the call.
 *
 * @throws NOT_STORED_YET if they are not stored in time; errors of the log.
 */
export async function requireStored(search: Omit<Search, 'waitMs'>): Promise<void> {
  if (!(await joinStorageWait(search, performance.now()))) throw createNotStoredError();
}

const createNotStoredError = () => runlakeError('NOT_STORED_YET', {}, { retryAfterSeconds: 2 });

/** Waits until the events are stored that the log had accepted at `calledAtMs`, together with other recent callers. */
function joinStorageWait({ log, topic, storeWaitMs }: Omit<Search, 'waitMs'>, calledAtMs: number): Promise<boolean> {
  const waitsOfLog = waits.get(log) ?? new Map<Topic, StorageWait>();
  waits.set(log, waitsOfLog);
  const newest = waitsOfLog.get(topic);
  const nowMs = performance.now();
  if (newest && newest.beganAtMs >= Math.max(calledAtMs, nowMs - joinMs)) return newest.isStored;
  const delayMs = newest === undefined ? 0 : Math.max(0, newest.beganAtMs + minIntervalMs - nowMs);
  const begin = async () => {
    if (delayMs > 0) await pause(delayMs);
    wait.beganAtMs = performance.now();
    return waitUntilStored(log, topic, { timeoutMs: storeWaitMs });
  };
  const wait: StorageWait = { beganAtMs: Number.POSITIVE_INFINITY, isStored: Promise.resolve().then(begin) };
  waitsOfLog.set(topic, wait);
  return wait.isStored;
}
